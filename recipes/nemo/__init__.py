"""NeMo Framework: NVIDIA's own recipes, on a laptop's CPU, on one GPU and on a cluster."""
