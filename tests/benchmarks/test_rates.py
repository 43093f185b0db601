"""Learning rates and schedules chosen from the rows of trials."""

import pytest
from support.runs import record

from benchmarks import rates
from benchmarks.experiments import Experiment


def trial(rate, error, schedule="one-cycle", **other):
    return record(
        *("darcy", "fno"),
        preset=rates.preset_of(rate, schedule),
        relative_l2=str(error),
        learning_rate=str(rate),
        schedule=schedule,
        **other,
    )


ONE_CYCLE = [
    trial(r, e) for r, e in zip(rates.RATES, (0.4, 0.2, 0.1, 0.3), strict=True)
]


def test_rates_come_before_the_other_schedule():
    names = [rates.preset_of(rate, "one-cycle") for rate in rates.RATES]
    assert rates.left("darcy", "fno", []) == names
    assert rates.left("darcy", "fno", ONE_CYCLE[1:]) == names[:1]
    assert rates.left("darcy", "fno", ONE_CYCLE) == [
        "short+learning-rate=0.01,schedule=schedule-free"
    ]
    done = [*ONE_CYCLE, trial(1e-2, 0.5, "schedule-free")]
    assert rates.left("darcy", "fno", done) == []
    assert rates.left("darcy", "dinozaur", done) == names
    free = [rates.preset_of(rate, "schedule-free") for rate in rates.RATES]
    assert rates.left("ahmed", "gino", []) == free


def test_rows_of_other_seeds_and_settings_do_not_count():
    other = trial(1e-3, 0.01)
    other["preset"] = "short+learning-rate=0.001,width=8"
    later = trial(1e-3, 0.01) | {"seed": "1"}
    assert rates.trials("darcy", "fno", [other, later]) == []


@pytest.mark.parametrize(
    ("free", "expected"), [(0.05, "schedule-free"), (0.5, "one-cycle")]
)
def test_the_better_schedule_is_chosen(free, expected, monkeypatch):
    rows = [*ONE_CYCLE, trial(1e-2, free, "schedule-free")]
    monkeypatch.setattr(rates, "_committed", lambda: rows)
    assert rates.chosen("darcy", "fno") == (min(free, 0.1), 1e-2, expected)
    tuned = Experiment("darcy", "fno", "none", "small")
    assert (tuned.rate, tuned.schedule) == (1e-2, expected)


def test_a_model_without_trials_names_the_command(monkeypatch):
    monkeypatch.setattr(rates, "_committed", lambda: ONE_CYCLE)
    with pytest.raises(ValueError, match="tune-all darcy --models dinozaur"):
        rates.chosen("darcy", "dinozaur")
