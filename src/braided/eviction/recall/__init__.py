"""Estimate the recall of a bounded join while it runs."""
