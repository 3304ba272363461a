"""The evaluation of the GreedyDual-Join paper: its data, its measures, and its figures 2.1 to 10."""
