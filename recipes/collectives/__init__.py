"""What GPUs of one host can send each other: NCCL's collectives, bandwidth against size."""
