"""Patterns looked for in ordered rows."""
