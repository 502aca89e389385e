"""Where recipes run: one lock a stack, and bundles for hosts without a network."""
