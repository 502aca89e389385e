"""Transformer Engine layers and bare GEMMs at the true widths of the five models, on one GPU.

`experiments` needs no GPU library; `layers` and `gemms` are the only modules that import torch and Transformer Engine.
"""
