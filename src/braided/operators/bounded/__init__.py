"""Joins with a budget: rows in order, a buffer, and results from it."""
