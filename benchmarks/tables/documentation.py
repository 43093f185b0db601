"""Tables of README and documentation, written from the committed results.

A table stands between ``<!-- name:start -->`` and ``<!-- name:end -->``, each on a line
of its own, on any page. ``python -m benchmarks table --update-docs`` writes them all.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.tables import paper_tables, records
from benchmarks.tables.files import ROOT, replace_between_markers

_START = re.compile(r"^<!-- ([\w-]+):start -->$", re.MULTILINE)


def documented_tables() -> dict[str, Callable[[], str]]:
    """Return the functions that make the tables, by the names of their markers."""
    from benchmarks.cost.command import STUDIES
    from benchmarks.studies import calibration, demo

    return {
        "table-1-small": partial(_from_runs, "1", "small"),
        "table-1-paper": partial(_from_runs, "1", "paper"),
        "table-2-small": partial(_from_runs, "2", "small"),
        "table-2-paper": partial(_from_runs, "2", "paper"),
        "table-initialisation-small": partial(_from_runs, "initialisation", "small"),
        "table-tune-small": partial(_from_runs, "tune", "small"),
        "demo-table": demo.documented,
        "calibration": calibration.documented,
        **{f"cost-{name}": study.documented for name, study in STUDIES.items()},
    }


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages that may have tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def markers(page: Path) -> list[str]:
    """Return the names of the tables of a page."""
    return _START.findall(page.read_text(encoding="utf-8"))


def update(root: Path = ROOT) -> Iterator[str]:
    """Write all tables, and draw the pictures of cost; yield what was done."""
    from benchmarks.cost.command import STUDIES

    known = documented_tables()
    for page in pages(root):
        for name in markers(page):
            if name in known:
                replace_between_markers(page, name, known[name]())
            done = "" if name in known else " (not written by this command)"
            yield f"{page.relative_to(root)}: {name}{done}"
    for study in STUDIES.values():
        study.draw_committed()


def _from_runs(name: str, preset: str) -> str:
    found = records.read(records.RUNS)
    return paper_tables.make_table(name, found, preset, "markdown")
