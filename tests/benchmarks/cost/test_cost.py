"""The cost benchmark runs, and the documentation shows what it wrote."""

import pytest

from benchmarks import cost, tables
from benchmarks.__main__ import main


@pytest.mark.parametrize("what", ["layers", "models", "growth", "axes"])
def test_quick_run_writes_rows(tmp_path, what, capsys):
    status = main(
        ["cost", "--quick", "--rounds", "1", "--what", what, "--out", str(tmp_path)]
    )
    assert status == 0
    name = {"layers": "cost", "models": "cost_models"}.get(what, f"cost_{what}")
    rows = tables.read_csv(tmp_path / f"{name}.csv")
    assert rows
    assert all(row["cpu"] and row["torch"] and row["date"] for row in rows)
    if what != "axes":
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    if what in ("layers", "models"):
        reference = [row for row in rows if row["layer"] == cost.REFERENCE]
        assert [row["ratio_forward_backward"] for row in reference] == ["1.000"]
        assert {row["layer"] for row in rows} >= {"dense", "dinozaur"}


def test_documentation_shows_the_committed_results():
    page = cost.PAGE.read_text(encoding="utf-8")
    for part, table in cost.documented_tables().items():
        start, end = f"<!-- cost-{part}:start -->", f"<!-- cost-{part}:end -->"
        shown = page.partition(start)[2].partition(end)[0]
        assert shown.strip() == table, part


def test_committed_results_cover_all_cases_and_layers():
    rows = tables.read_csv(cost.RESULTS / "cost.csv")
    assert {(row["case"], row["layer"]) for row in rows} == {
        (case, layer) for case in cost.CASES for layer in cost.LAYERS
    }


def test_results_of_other_cases_are_kept(tmp_path, monkeypatch):
    committed = tables.read_csv(cost.RESULTS / "cost.csv")
    tables.write_csv(tmp_path / "cost.csv", committed)
    old = {row["layer"]: row for row in committed if row["case"] == "darcy"}
    new = [{**row, "forward_ms": "1234.5"} for row in old.values()]
    monkeypatch.setattr(cost, "measure_layer", lambda *words: new)
    words = ["cost", "--what", "layers", "--cases", "darcy", "--out", str(tmp_path)]
    assert main(words) == 0
    found = tables.read_csv(tmp_path / "cost.csv")
    assert [row["case"] for row in found] == [row["case"] for row in committed]
    changed = [row for row in found if row not in committed]
    assert changed == new


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "--rounds"),
        (["--quick"], "--out"),
        (["--update-docs", "--out", "x"], "--update-docs"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    assert main(["cost", *arguments]) == 2
    assert message in capsys.readouterr().err
