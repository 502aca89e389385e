"""Time on the device, split: by an example, and against counting every nanosecond."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recipes.nemo.occupancy import occupancy

KERNELS = st.lists(
    st.tuples(st.sampled_from(["ncclDevKernel_AllReduce", "nvjet"]), st.integers(0, 60), st.integers(0, 20)).map(
        lambda k: (k[0], k[1], k[1] + k[2])
    ),
    min_size=1,
    max_size=12,
)


def test_communication_behind_computing_is_not_exposed() -> None:
    found = occupancy([("gemm", 0, 10), ("ncclDevKernel_AllGather", 5, 14), ("gemm", 20, 30)])
    assert {key: round(value * 1e9) for key, value in found.items()} == {
        "span_s": 30,
        "compute_s": 20,
        "communication_s": 9,
        "exposed_communication_s": 4,
        "idle_s": 6,
    }
    assert occupancy([]) == {}


@given(KERNELS)
def test_every_nanosecond_is_counted_once(kernels: list[tuple[str, int, int]]) -> None:
    found = {key: round(value * 1e9) for key, value in occupancy(kernels).items()}
    ticks = range(min(start for _, start, _ in kernels), max(end for _, _, end in kernels))
    compute = {t for t in ticks for name, start, end in kernels if name == "nvjet" and start <= t < end}
    communication = {t for t in ticks for name, start, end in kernels if name != "nvjet" and start <= t < end}
    assert found["compute_s"] == len(compute)
    assert found["communication_s"] == len(communication)
    assert found["exposed_communication_s"] == len(communication - compute)
    assert found["idle_s"] == len(ticks) - len(compute | communication)
    assert found["span_s"] == len(ticks)
