"""One reader a framework: raw output in, a typed `Run` out, with everything wrong that was seen on the way."""

from analysis.logs.folder import read_run
from analysis.logs.run import Op, PowerSample, Reason, Run, Step, Trained

__all__ = ["Op", "PowerSample", "Reason", "Run", "Step", "Trained", "read_run"]
