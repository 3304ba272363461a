"""Routing: which worker sees which row."""
