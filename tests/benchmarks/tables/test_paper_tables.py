"""The paper's tables from a results file."""

import pytest

from benchmarks import efficiency, paper_tables, records
from benchmarks.__main__ import main
from benchmarks.cost import RESULTS
from benchmarks.table_formats import Block, Cell, show
from benchmarks.tables import read_csv


def record(dataset, model, seed, noise="none", **values):
    filled = {name: "1" for name in records.COLUMNS}
    key = {"dataset": dataset, "model": model, "preset": "cpu", "seed": str(seed)}
    return {**filled, **key, "noise": noise, "parameters": "12345", **values}


@pytest.fixture
def results(tmp_path):
    rows = [
        record("darcy", "fno", seed, relative_l2=str(relative_l2))
        for seed, relative_l2 in enumerate([0.010, 0.012, 0.014])
    ]
    rows += [record("darcy", "dinozaur", s, relative_l2="0.011") for s in range(3)]
    rows += [record("car", "dinozaur_b", 0, "fitted", relative_l2="0.07", nll="-2.5")]
    rows += [record("car", "tgino_d", 0, "fixed", relative_l2="0.08", nll="3.25")]
    records.add(tmp_path / "runs.csv", rows)
    return tmp_path


def line_of(text, name):
    return next(line for line in text.splitlines() if name in line)


def test_table_1_has_means_deviations_and_the_best_in_bold(results, capsys):
    words = ["table", "1", "--out", str(results), "--format"]
    assert main([*words, "markdown"]) == 0
    shown = capsys.readouterr().out
    assert "1.20 ± 0.20" in line_of(shown, "| FNO  ")
    assert "0.90 ± 0.03" in line_of(shown, "| FNO  ")  # the paper's
    assert "**1.10 ± 0.00**" in line_of(shown, "| DINOZAUR  ")
    assert "**0.75 ± 0.10**" in line_of(shown, "| DINOZAUR  ")
    assert "12.3" in line_of(shown, "| DINOZAUR  ")
    assert "Mean ± standard deviation of 3 seeds" in shown
    assert "Navier" not in shown  # no results
    assert main([*words, "text"]) == 0
    assert "*1.10 ± 0.00*" in capsys.readouterr().out
    assert main([*words, "latex"]) == 0
    shown = capsys.readouterr().out
    assert r"\textbf{1.10 $\pm$ 0.00}" in shown
    assert r"RL2 ($10^{-2}$)" in shown


def test_table_2_has_all_noises_and_the_paper_once(results, capsys):
    assert main(["table", "2", "--out", str(results), "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    bayesian = [line for line in shown.splitlines() if "DINOZAUR B" in line]
    assert len(bayesian) == 2
    fixed, fitted = bayesian
    assert "**-2.500**" in fitted
    assert "**2.767 ± 0.011**" in fitted
    assert "2.767" not in fixed
    dropout = [line for line in shown.splitlines() if "TGINO D" in line]
    assert "e⁻⁴" in dropout[0]
    assert "2.996 ± 0.010" in dropout[0]
    assert "2.996" not in dropout[1]
    assert "GINO L" in shown  # without results, but in the paper
    assert "One seed" in shown


def test_table_of_starts(tmp_path, capsys):
    rows = [record("car", "dinozaur", 0, relative_l2="0.3")]
    rows.append(
        {**record("car", "gino", 0, relative_l2="0.2"), "preset": "torch-start"}
    )
    rows.append(
        {**record("car", "dinozaur", 0, relative_l2="0.4"), "preset": "torch-start"}
    )
    records.add(tmp_path / "runs.csv", rows)
    words = ["table", "starts", "--out", str(tmp_path), "--format", "markdown"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    cells = [cell.strip() for cell in line_of(shown, "| DINOZAUR  ").split("|")]
    assert cells[2:4] == ["40.00", "**30.00**"]
    assert "**20.00**" in line_of(shown, "| GINO  ")
    assert "Ahmed" not in shown
    assert "No results yet" in paper_tables.make_table("starts", [], "cpu", "text")
    assert main([*words, "--preset", "paper"]) == 2


def test_without_results(tmp_path, capsys):
    assert main(["table", "1", "--out", str(tmp_path)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert "No results yet" in paper_tables.make_table("1", [], "cpu", "text")
    assert main(["table", "1", "--out", str(tmp_path), "--update-docs"]) == 2
    assert "leave out --out" in capsys.readouterr().err


def test_docs_are_updated(results, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table-1-cpu:start -->\n<!-- table-1-cpu:end -->\nb\n")
    monkeypatch.setattr(paper_tables, "PAGE", page)
    monkeypatch.setattr(records, "RUNS", results / "runs.csv")
    assert main(["table", "1", "--update-docs"]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("a\n")
    assert text.endswith("b\n")
    assert "**1.10 ± 0.00**" in text


@pytest.mark.parametrize(
    ("number", "preset"),
    [
        ("1", "cpu"),
        ("1", "paper"),
        ("2", "cpu"),
        ("2", "paper"),
        ("starts", "cpu"),
        ("trials", "cpu"),
    ],
)
def test_docs_show_the_committed_results(number, preset):
    found = records.read(records.RUNS)
    page = paper_tables.PAGE.read_text(encoding="utf-8")
    name = paper_tables.marker(number, preset)
    shown = page.partition(f"<!-- {name}:start -->\n")[2]
    text = paper_tables.make_table(number, found, preset, "markdown")
    assert shown.partition(f"\n<!-- {name}:end -->")[0] == text


def test_docs_show_the_committed_efficiency():
    rows = read_csv(RESULTS / "efficiency.csv")
    page = efficiency.PAGE.read_text(encoding="utf-8")
    shown = page.partition("<!-- efficiency:start -->\n")[2]
    assert shown.partition("\n<!-- efficiency:end -->")[0] == efficiency.show(rows)
    assert [row["model"] for row in rows] == list(efficiency.MODELS)
    assert {row["preset"] for row in rows} == {"cpu"}


def test_small_numbers_keep_their_digits():
    rows = [[record("darcy", "fno", 0, **{"interval_score": "0.00234"})]]
    (cell,) = paper_tables.column(
        rows, "interval_score", paper_tables.MEASURES["interval_score"]
    )
    assert cell == Cell("0.00234", bold=True)


def test_unknown_format():
    with pytest.raises(ValueError, match="style"):
        show([Block("t", ["a"], [[Cell("b")]], "n")], "html")
