"""Results: CSV files, the paper's tables, figures."""

from benchmarks.tables.files import (
    RESULTS,
    ROOT,
    STATIC,
    Row,
    markdown_table,
    read_csv,
    replace_between_markers,
    write_csv,
)

__all__ = [
    "RESULTS",
    "ROOT",
    "STATIC",
    "Row",
    "markdown_table",
    "read_csv",
    "replace_between_markers",
    "write_csv",
]
