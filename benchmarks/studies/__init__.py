"""Comparisons of a few models: the demo, quantities, transfer."""
