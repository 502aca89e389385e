"""One module an exhibit: data in; table, chart and caption out.

An exhibit is made from raw results and published facts, or (`claims`) from the other exhibits' tables; the order here
is the order in which they are built.
"""

FROM_RAW = (
    "fp8_speedup",
    "step_breakdown",
    "memory",
    "window_sensitivity",
    "layer_speedup",
    "gemm_throughput",
    "capability",
    "published_lint",
    "log_faults",
    "mlperf_precision",
    "nvfp4_speedup",
    "maxtext_numerics",
    "recipe_pairs",
    "excluded_runs",
)
FROM_TABLES = ("claims",)
EXHIBITS = FROM_RAW + FROM_TABLES
