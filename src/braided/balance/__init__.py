"""Balance: which worker is hot, and what moves away from it."""
