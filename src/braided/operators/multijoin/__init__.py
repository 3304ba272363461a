"""The exact join of many streams on a common key."""
