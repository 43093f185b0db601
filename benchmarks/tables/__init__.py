"""Results: rows in CSV files, and Markdown tables between two markers of a page."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.files import atomic_path, locked

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
#: Pictures and checkpoints that are not committed.
OUTPUT = ROOT / "benchmarks" / "output"
#: Pictures of the documentation.
STATIC = ROOT / "docs" / "_static"

Row = Mapping[str, str]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows that share their columns, replacing the file in one step."""
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a result file, every value as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_if_there(path: Path) -> list[dict[str, str]]:
    """Read the rows of a result file; none if there is no file."""
    return read_csv(path) if path.exists() else []


def add_rows(path: Path, rows: Sequence[Row], key: Sequence[str]) -> None:
    """Add rows, sorted by their keys; equal keys replace.

    Processes may share the file.
    """
    with locked(path):
        found = {
            tuple(row[k] for k in key): row for row in (*read_if_there(path), *rows)
        }
        write_csv(path, [found[place] for place in sorted(found)])


def markdown_table(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Format some columns of the rows, given with their titles, as a Markdown table."""
    return markdown([[*columns.values()], *([row[c] for c in columns] for row in rows)])


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells, the first one with the titles, as a Markdown table.

    The first column is aligned to the left, the others, numbers, to the right.
    """
    widths = [max(2, *map(len, column)) for column in zip(*lines, strict=True)]

    def join(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        others = [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *others]) + " |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([join(lines[0]), join(rule), *map(join, lines[1:])])


def mean_and_deviation(values: Sequence[float]) -> str:
    """Format the mean, with the standard deviation of several values."""
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def replace_between_markers(path: Path, name: str, text: str) -> None:
    """Put ``text`` between ``<!-- name:start -->`` and ``<!-- name:end -->``."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    document = path.read_text(encoding="utf-8")
    before, found_start, rest = document.partition(start)
    _, found_end, after = rest.partition(end)
    if not (found_start and found_end):
        raise ValueError(
            f"{path} has no lines {start} and {end} to put a table between"
        )
    with atomic_path(path) as temporary:
        temporary.write_text(f"{before}{start}\n{text}\n{end}{after}", encoding="utf-8")
