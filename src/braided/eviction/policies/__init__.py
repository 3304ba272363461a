"""Eviction policies, one per file, and the counts and percentiles that they learn from."""
