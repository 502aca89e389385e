"""Versioned results: raw runs (through DVC), published facts, and the exhibits made from them."""
