"""Load balancing: which workers are hot, and what moves away from them."""
