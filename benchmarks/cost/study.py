"""A study of cost, and the runner of all of them."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks import environment, tables
from benchmarks.cost.measure import Setup

Rows = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Study:
    """A result file, its cases, and how one case is measured."""

    about: str  # one line for the help
    file: str
    cases: Mapping[str, Any]
    smoke: Mapping[str, Any]  # cases for a test of the command
    measure: Callable[[str, Any, Setup], list[dict[str, str]]]  # the rows of a case
    columns: Mapping[str, str]  # of the table, with their titles
    rounds: int = 5
    on_request: tuple[str, ...] = ()  # cases that are measured only if they are named
    case_of: Callable[[Mapping[str, str]], str] = itemgetter(
        "case"
    )  # the case of a row
    note: str = ""  # below the table, with columns of the first row in braces
    draw: Callable[[Path, Rows], None] | None = None

    def show(self, rows: Rows) -> str:
        """Return the table, and a line that says how it was made."""
        if not rows:
            return f"No results yet. Run `python -m benchmarks cost` for {self.file}."
        # Some studies have several rows for one line of the table.
        unique = {tuple(row[c] for c in self.columns): row for row in rows}
        table = tables.markdown_table(list(unique.values()), self.columns)
        threads = " and ".join(sorted({row["threads"] for row in rows}))
        caption = environment.caption({**rows[0], "threads": threads})
        return f"{table}\n\n{self.note.format(**rows[0])}{caption}"

    def draw_committed(self) -> None:
        """Draw the committed results for the documentation."""
        if self.draw is not None and (tables.RESULTS / self.file).exists():
            rows = tables.read_csv(tables.RESULTS / self.file)
            self.draw(tables.STATIC / f"{Path(self.file).stem}.png", rows)

    def run(self, args: argparse.Namespace) -> None:
        """Measure, print the table, write the result file and the picture.

        Results of other cases in the file are kept.
        """
        path = (args.out or tables.RESULTS) / self.file
        names = args.cases or [c for c in self.cases if c not in self.on_request]
        chosen = (
            self.smoke if args.smoke else {name: self.cases[name] for name in names}
        )
        rounds = args.rounds or self.rounds
        setup = Setup(rounds, args.device, args.precision, args.compile)
        rows = tables.read_csv(path) if path.exists() else []
        order = [*self.cases, *self.smoke]
        for name, case in chosen.items():
            rows = [row for row in rows if self.case_of(row) != name]
            machine = {**setup.describe(), **environment.describe()}
            with setup.active():
                found = self.measure(name, case, setup)
            rows += [{**row, **machine} for row in found]
            rows.sort(key=lambda row: order.index(self.case_of(row)))
            columns = dict.fromkeys(key for row in rows for key in row)
            # Finished cases survive an interruption.
            tables.write_csv(path, [dict.fromkeys(columns, "") | row for row in rows])
        print(f"\n{self.show(rows)}\n\nwritten: {path}")
        if self.draw is not None:
            picture = (args.out or tables.STATIC) / f"{path.stem}.png"
            self.draw(picture, rows)
            print(f"         {picture}")
