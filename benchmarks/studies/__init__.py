"""Comparisons of a few models: the demo, calibration, the ablation."""
