"""Tables of README and documentation, written from the committed results.

A table stands between ``<!-- name:start -->`` and ``<!-- name:end -->``, each on a line
of its own, on any page. ``python -m benchmarks table --update-docs`` writes them all.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks import tables
from benchmarks.tables import paper_tables, records
from benchmarks.tables.significance import read_errors

#: By name: what a picture shows, and the command that draws it.
PICTURES = {
    "rollouts": (
        "Errors over 100 steps, and how much of the truth is in 90 % intervals",
        "rollouts burgers --files FOLDER",
    ),
    "curves": ("Test errors over the epochs of long runs", "figure curves --publish"),
    "cost_steps": ("Errors over time per step and over parameters", "cost steps"),
    "car": (
        "Pressure, prediction and error on a car",
        "figure car --files FOLDER --publish",
    ),
}
_START = re.compile(r"^<!-- ([\w-]+):start -->$", re.MULTILINE)


def documented_tables() -> dict[str, Callable[[], str]]:
    """Return the functions that make the tables, by the names of their markers."""
    from benchmarks.cost.command import STUDIES
    from benchmarks.studies import (
        demo,
        library,
        quantities_table,
        rollouts,
        transfer_report,
    )

    runs = [("1", "small"), ("2", "small"), ("1", "long")]
    runs += [(n, "small") for n in ("kernels", "sweep", "authors", "authors-short")]
    return {
        **{f"table-{n}-{preset}": partial(_from_runs, n, preset) for n, preset in runs},
        "demo-table": partial(_shown, demo.show, "demo.csv"),
        "library": partial(_shown, library.show, "library.csv"),
        "library-short": partial(
            _shown, library.show_short, "library.csv", "cost_models.csv"
        ),
        "rollouts": partial(_shown, rollouts.show, "rollouts.csv"),
        "quantities": partial(_shown, quantities_table.plain, "quantities.csv"),
        **{
            f"quantities-{name}": partial(
                _shown,
                partial(quantities_table.show, dataset=name),
                "quantities.csv",
            )
            for name in ("darcy", "car", "ahmed")
        },
        "transfer": partial(_shown, transfer_report.show, "transfer.csv"),
        **{f"picture-{name}": partial(_picture, name) for name in PICTURES},
        **{f"cost-{n}": partial(_shown, s.show, s.file) for n, s in STUDIES.items()},
    }


def _from_runs(name: str, preset: str) -> str:
    errors = read_errors(tables.RESULTS)
    return paper_tables.make_table(name, records.read(records.RUNS), preset, errors)


def _shown(show: Callable[..., str], *files: str) -> str:
    return show(*(tables.read_if_there(tables.RESULTS / file) for file in files))


def _picture(name: str) -> str:
    text, command = PICTURES[name]
    if (tables.STATIC / f"{name}.png").exists():
        return f"![{text}](_static/{name}.png)"
    return f"No picture yet. Run `python -m benchmarks {command}`."


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
