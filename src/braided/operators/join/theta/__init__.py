"""Joins without a key: the pairs that a window and a predicate find."""
