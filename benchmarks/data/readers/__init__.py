"""Readers of public files; :func:`~benchmarks.data.readers.open_files.open_files`."""
