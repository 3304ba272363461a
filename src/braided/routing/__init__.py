"""Routing: which worker gets which row."""
