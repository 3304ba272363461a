"""The join of each row with the last rows of the other stream."""
