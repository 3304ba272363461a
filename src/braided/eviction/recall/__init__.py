"""Recall estimated while a bounded join runs."""
