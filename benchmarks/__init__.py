"""Benchmarks of dinozaur_no, run as ``python -m benchmarks <command>``."""
