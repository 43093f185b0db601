"""Data for the benchmarks, made by built-in solvers."""
