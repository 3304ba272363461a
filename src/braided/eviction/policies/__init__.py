"""Eviction policies, one a file, and what they learn from."""
