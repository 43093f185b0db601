"""Tables of README and documentation, written from the committed results.

A table stands between ``<!-- name:start -->`` and ``<!-- name:end -->``, each on a line
of its own, on any page. ``python -m benchmarks table --update-docs`` writes them all.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.tables import paper_tables, records

_START = re.compile(r"^<!-- ([\w-]+):start -->$", re.MULTILINE)


def documented_tables() -> dict[str, Callable[[], str]]:
    """Return the functions that make the tables, by the names of their markers."""
    from benchmarks.cost.command import STUDIES
    from benchmarks.data import report
    from benchmarks.studies import calibration, demo, transfer_report

    runs = [("1", "small"), ("1", "paper"), ("2", "small"), ("2", "paper")]
    runs += [(n, "small") for n in ("initialisation", "kernels", "rates", "tune")]
    return {
        **{f"table-{n}-{preset}": partial(_from_runs, n, preset) for n, preset in runs},
        "demo-table": partial(_shown, demo.show, "demo.csv"),
        "calibration": partial(_shown, calibration.show, "calibration.csv"),
        "transfer": partial(_shown, transfer_report.show, "transfer.csv"),
        "data": partial(_shown, report.show, "data.csv"),
        **{f"cost-{n}": partial(_shown, s.show, s.file) for n, s in STUDIES.items()},
    }


def _from_runs(name: str, preset: str) -> str:
    return paper_tables.make_table(name, records.read(records.RUNS), preset)


def _shown(show: Callable[[Any], str], file: str) -> str:
    return show(tables.read_csv(tables.RESULTS / file))


def pages(root: Path = tables.ROOT) -> list[Path]:
    """Return the pages that may have tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def markers(page: Path) -> list[str]:
    """Return the names of the tables of a page."""
    return _START.findall(page.read_text(encoding="utf-8"))


def update(root: Path = tables.ROOT) -> Iterator[str]:
    """Write all tables, and draw the pictures of cost; yield what was done."""
    from benchmarks.cost.command import STUDIES

    known = documented_tables()
    for page in pages(root):
        for name in markers(page):
            if name in known:
                tables.replace_between_markers(page, name, known[name]())
            done = "" if name in known else " (unknown)"
            yield f"{page.relative_to(root)}: {name}{done}"
    for study in STUDIES.values():
        study.draw_committed()
