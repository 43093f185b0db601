"""Learning rate and schedule of each model, chosen on held-out samples.

``python -m benchmarks tune-all`` trains every model with one schedule and each of
:data:`RATES`, and then with the other schedule and the best of them, all in the preset
:data:`BASE`. Choices follow from these rows of ``runs.csv``.
"""

import re
from functools import cache
from typing import NamedTuple

from benchmarks.presets import Schedule
from benchmarks.tables import RESULTS, read_if_there

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
BASE = "short"
#: Schedules of the four rates. With one cycle no model learns Ahmed bodies in so few
#: steps.
_FIRST: dict[str, Schedule] = {"ahmed": "schedule-free"}
_OWN = re.compile(rf"{BASE}\+learning-rate=[^,]+(,schedule=[^,]+)?")


class Trial(NamedTuple):
    """Error on held-out samples with a learning rate and a schedule."""

    error: float
    rate: float
    schedule: Schedule


def preset_of(rate: float, schedule: Schedule) -> str:
    """Return the name of the preset of a trial."""
    return f"{BASE}+learning-rate={rate:g},schedule={schedule}"


def first_schedule(dataset: str) -> Schedule:
    """Return the schedule that all rates are tried with."""
    return _FIRST.get(dataset, "one-cycle")


def trials(dataset: str, model: str, rows: list[dict[str, str]]) -> list[Trial]:
    """Return the finished trials of a model, of the first seed."""
    wanted = (dataset, model, "none", "0")
    return [
        Trial(float(r["relative_l2"]), float(r["learning_rate"]), r["schedule"])  # type: ignore[arg-type]
        for r in rows
        if (r["dataset"], r["model"], r["uncertainty"], r["seed"]) == wanted
        and _OWN.fullmatch(r["preset"])
    ]


def left(dataset: str, model: str, rows: list[dict[str, str]]) -> list[str]:
    """Return the presets of the next trials of a model; none if all are done."""
    found = trials(dataset, model, rows)
    first = first_schedule(dataset)
    with_first = [trial for trial in found if trial.schedule == first]
    have = {trial.rate for trial in with_first}
    if missing := [rate for rate in RATES if rate not in have]:
        return [preset_of(rate, first) for rate in missing]
    if len(found) > len(with_first):
        return []
    second: Schedule = "one-cycle" if first == "schedule-free" else "schedule-free"
    return [preset_of(min(with_first).rate, second)]


def chosen(dataset: str, model: str) -> Trial:
    """Return the best trial of a model."""
    rows = _committed()
    if left(dataset, model, rows):
        raise ValueError(
            f"{model} on {dataset} has no learning rate yet. Run python -m benchmarks "
            f"tune-all {dataset} --models {model}"
        )
    return min(trials(dataset, model, rows))


@cache
def _committed() -> list[dict[str, str]]:
    return read_if_there(RESULTS / "runs.csv")
