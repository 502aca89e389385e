"""One reader a framework: raw output in, a typed `Run` out, with everything wrong that was seen on the way."""

from analysis.logs.run import Op, PowerSample, Reason, Run, Step
from analysis.logs.te_layers import read_run

__all__ = ["Op", "PowerSample", "Reason", "Run", "Step", "read_run"]
