"""Buffers that choose their policy, or its parameter, while they run."""
