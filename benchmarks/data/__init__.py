"""Data of the benchmarks, made by built-in solvers or read from public files."""
