"""MaxText on JAX: BF16, FP8, MXFP8 and NVFP4 through Transformer Engine, natively or emulated."""
