"""Aggregates inside the worker that makes the rows: partial results, and how long they may still grow."""
