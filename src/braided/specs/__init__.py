"""Logical operators and their options, as users write them."""
