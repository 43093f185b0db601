"""Tests over samples, and the tables that show them."""

import numpy as np
import pytest
from support.runs import line_of, record

from benchmarks import rates, tables
from benchmarks.__main__ import main
from benchmarks.tables import records
from benchmarks.tables.significance import p_values, read_errors


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return 0.1 + 0.05 * rng.random(40)


def test_paired_differences_count_and_not_the_spread_of_samples(samples):
    rng = np.random.default_rng(1)
    groups = [[record("darcy", name)] for name in ("fno", "fno_g", "tfno", "dinozaur")]
    keys = [records.key_of(own[0]) for own in groups]
    errors = {
        keys[0]: samples,
        keys[1]: samples + 0.001,  # small against the spread of samples, but always
        keys[2]: samples + 1e-4 + 0.01 * rng.standard_normal(40),
    }
    assert p_values(groups, errors)[::3] == ["", ""]  # the best; without errors
    always, sometimes = p_values(groups, errors)[1:3]
    assert always == "< 0.001"
    assert float(sometimes) > 0.05


def test_errors_are_averaged_over_seeds(samples):
    groups = [
        [record("darcy", name, seed) for seed in range(2)] for name in ("fno", "tfno")
    ]
    errors = {records.key_of(r): samples for own in groups for r in own}
    errors[records.key_of(groups[0][0])] = samples - 0.02
    errors[records.key_of(groups[0][1])] = samples + 0.01
    assert p_values(groups, errors) == ["", "< 0.001"]


def test_no_errors_no_cells():
    assert p_values([[record("darcy", "fno")], []], {}) == ["", ""]


@pytest.fixture
def results(tmp_path, samples):
    rows, listed = [], []
    for preset in ("authors-81", "authors-241"):
        for name, more in (("fno", 0.0), ("dinozaur", 0.01)):
            mean = samples.mean() + more
            rows.append(record("darcy", name, preset=preset, relative_l2=str(mean)))
            key = dict(zip(records.KEY, records.key_of(rows[-1]), strict=True))
            words = " ".join(f"{value:.4g}" for value in samples + more)
            listed.append({**key, "relative_l2": words})
    for rate, error in zip(rates.RATES, ("0.4", "0.2", "0.1", "0.3"), strict=True):
        own = {"learning_rate": str(rate), "schedule": "one-cycle"}
        preset = rates.preset_of(rate, "one-cycle")
        rows.append(record("darcy", "fno", preset=preset, relative_l2=error, **own))
    records.add(tmp_path / "runs.csv", rows)
    tables.add_rows(tmp_path / "errors.csv", listed, records.KEY)
    return tmp_path


def test_errors_are_read_by_run(results, samples):
    errors = read_errors(results)
    key = ("darcy", "fno", "none", "authors-81", "0", "none")
    np.testing.assert_allclose(errors[key], samples, rtol=1e-3)


def test_table_of_the_authors_data(results, capsys):
    assert main(["table", "authors", "--out", str(results)]) == 0
    shown = capsys.readouterr().out
    assert "< 0.001" in line_of(shown, "| DINOZAUR")
    assert "< 0.001" not in line_of(shown, "| FNO")
    assert line_of(shown, "| FNO").count("**") == 4  # best at both resolutions
    assert "TFNO" not in shown  # no results
    assert "paired over test samples" in shown


def test_table_of_rates_marks_the_choice(results, capsys):
    assert main(["table", "sweep", "--out", str(results)]) == 0
    shown = line_of(capsys.readouterr().out, "| FNO")
    cells = [cell.strip() for cell in shown.split("|")[2:-1]]
    assert cells == ["40.00", "20.00", "**10.00**", "30.00", "-"]
