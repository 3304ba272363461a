"""Joins with a budget: rows in order, a buffer, and what comes out of it."""
