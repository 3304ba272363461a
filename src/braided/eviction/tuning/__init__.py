"""Buffers that choose their own policy or parameter."""
