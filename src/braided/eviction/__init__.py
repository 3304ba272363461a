"""Bounded buffers: the rows of a window that fit a budget, and the policies that choose them."""
