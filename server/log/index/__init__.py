"""The three indexes of a segment: offset index, time index and transaction index."""
