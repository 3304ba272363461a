"""The contract of an operator, and the router's and the worker's part of a batch, the same on all runtimes."""
