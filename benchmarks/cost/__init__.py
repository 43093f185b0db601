"""Time and memory: one table of studies and one runner."""
