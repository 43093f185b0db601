"""The paper's tables from a results file."""

import pytest
from support.runs import line_of, record

from benchmarks.__main__ import main
from benchmarks.tables import paper_tables, records


@pytest.fixture
def results(tmp_path):
    rows = [
        record("darcy", "fno", seed, relative_l2=str(relative_l2))
        for seed, relative_l2 in enumerate([0.010, 0.012, 0.014])
    ]
    rows += [record("darcy", "dinozaur", s, relative_l2="0.011") for s in range(3)]
    values = {"relative_l2": "0.07", "nll": "-2.5"}
    rows += [record("car", "dinozaur", 0, "fitted", "bayesian", **values)]
    values = {"relative_l2": "0.08", "nll": "3.25"}
    rows += [record("car", "tgino", 0, "fixed", "dropout", **values)]
    records.add(tmp_path / "runs.csv", rows)
    return tmp_path


def test_table_1_has_means_deviations_and_the_best_in_bold(results, capsys):
    assert main(["table", "1", "--out", str(results)]) == 0
    shown = capsys.readouterr().out
    assert "1.20 ± 0.20" in line_of(shown, "| FNO  ")
    assert "0.90 ± 0.03" in line_of(shown, "| FNO  ")  # the paper's
    assert "**1.10 ± 0.00**" in line_of(shown, "| DINOZAUR  ")
    assert "**0.75 ± 0.10**" in line_of(shown, "| DINOZAUR  ")
    assert "12.3" in line_of(shown, "| DINOZAUR  ")
    assert "Mean ± standard deviation of 3 seeds" in shown
    assert "Navier" not in shown  # no results


def test_table_2_has_all_noises_and_the_paper_once(results, capsys):
    assert main(["table", "2", "--out", str(results)]) == 0
    shown = capsys.readouterr().out.splitlines()
    fixed, fitted = [
        line for line in shown if "| DINOZAUR " in line and "bayes" in line
    ]
    assert "**-2.500**" in fitted
    assert "**2.767 ± 0.011**" in fitted
    assert "2.767" not in fixed
    dropout = [line for line in shown if "| TGINO " in line and "dropout" in line]
    assert "e⁻⁴" in dropout[0]
    assert "2.996 ± 0.010" in dropout[0]
    assert "2.996" not in dropout[1]
    # Without results, but in the paper.
    assert [line for line in shown if "| GINO " in line and "laplace" in line]
    assert any("One seed" in line for line in shown)


def test_table_of_kernels_has_a_column_for_each_data_set(tmp_path, capsys):
    rows = [
        record("darcy", "dinozaur", s, relative_l2=error, preset="short+kernels=4")
        for s, error in enumerate(["0.02", "0.04"])
    ]
    other = {"preset": "short+kernels=rest"}
    rows += [record("darcy", "dinozaur", relative_l2="0.05", **other)]
    rows += [record("car", "dinozaur", relative_l2="0.3", **other)]
    rows += [record("darcy", "dinozaur", relative_l2="0.9")]  # of another preset
    records.add(tmp_path / "runs.csv", rows)
    assert main(["table", "kernels", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Darcy flow" in line_of(shown, "| Model")
    assert "Cars" in line_of(shown, "| Model")
    first, second = (x for x in shown.splitlines() if x.startswith("| DINOZAUR"))
    assert "**3.00 ± 1.41**" in first
    assert first.rstrip().endswith("- |")
    assert "5.00" in second
    assert "**30.00**" in second
    assert "90.00" not in shown


def test_table_of_tuned_settings(tmp_path, capsys):
    rows = [record("car", "dinozaur", relative_l2="0.3")]
    none = paper_tables.make_table("tune", rows, "small")
    assert none.startswith("No results yet. Run `python -m benchmarks tune ")
    for preset, error in (
        ("small+width=32", "0.2"),
        ("small+width=8", "0.4"),
        ("rate-0.03", "0.25"),  # of a finished comparison
        ("short+width=8", "0.5"),
    ):
        rows.append(record("car", "dinozaur", relative_l2=error, preset=preset))
    for noise, error in (("fixed", "0.1"), ("fitted", "0.6")):
        values = {"relative_l2": error, "preset": "small+kl-weight=16"}
        rows.append(record("car", "dinozaur", 0, noise, "bayesian", **values))
    records.add(tmp_path / "runs.csv", rows)
    words = ["table", "tune", "--out", str(tmp_path)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "30.00" not in shown  # the test samples' result
    assert "25.00" not in shown
    assert "50.00" not in shown
    assert "**20.00**" in line_of(shown, "width=32")
    assert "40.00" in line_of(shown, "width=8")
    assert "60.00" in line_of(shown, "DINOZAUR, bayesian")
    assert "held-out samples" in shown
    assert main([*words, "--preset", "short"]) == 0
    assert "**50.00**" in line_of(capsys.readouterr().out, "width=8")
    assert main([*words, "--preset", "paper"]) == 2
    assert "leave out --preset paper" in capsys.readouterr().err


def test_without_results(tmp_path, capsys):
    assert main(["table", "1", "--out", str(tmp_path)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert "No results yet" in paper_tables.make_table("1", [], "small")


def test_small_numbers_keep_their_digits():
    rows = [[record("darcy", "fno", 0, interval_score="0.00234")]]
    (cell,) = paper_tables.column(
        rows, "interval_score", paper_tables.MEASURES["interval_score"]
    )
    assert cell == "**0.00234**"


def test_table_of_long_runs_has_the_errors_of_the_paper_and_minutes(tmp_path, capsys):
    own = {"preset": "long", "seconds": "3600"}
    rows = [
        record("darcy", "fno", 0, relative_l2="0.014", **own),
        record("darcy", "transport", 0, relative_l2="0.011", **own),
        record("darcy", "tfno", 0, relative_l2="0.001"),  # another preset
    ]
    records.add(tmp_path / "runs.csv", rows)
    assert main(["table", "length", "--preset", "long", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    cells = line_of(shown, "| FNO  ").replace(" ", "").split("|")
    assert cells[3:6] == ["1.40", "0.90", "60"]
    cells = line_of(shown, "| Transport ").replace(" ", "").split("|")
    assert cells[3:6] == ["**1.10**", "-", "60"]
    assert "TFNO" not in shown
