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
    assert "1.20 ± 0.20" in line_of(shown, "| FNO ")
    assert "0.90 ± 0.03" in line_of(shown, "| FNO ")  # the paper's
    assert "**1.10 ± 0.00**" in line_of(shown, "| DINOZAUR ")
    assert "**0.75 ± 0.10**" in line_of(shown, "| DINOZAUR ")
    assert "12.3" in line_of(shown, "| DINOZAUR ")
    assert "Mean ± standard deviation of 3 seeds" in shown
    assert "Navier" not in shown  # no results


def test_table_2_has_our_results_and_below_them_the_papers(results, capsys):
    assert main(["table", "2", "--out", str(results)]) == 0
    shown = capsys.readouterr().out.splitlines()
    ours, theirs = [line for line in shown if "DINOZAUR" in line and "bayes" in line]
    assert "fitted" in ours
    assert "**-2.500**" in ours
    assert "paper's" in theirs
    assert "**2.767 ± 0.011**" in theirs
    ours, theirs = [line for line in shown if "| TGINO " in line and "dropout" in line]
    assert "e⁻⁴" in ours
    assert "3.250" in ours
    assert "2.996 ± 0.010" in theirs
    # Without results, but in the paper.
    assert len([x for x in shown if "| GINO " in x and "laplace" in x]) == 1
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


def test_table_1_leaves_out_models_without_results(tmp_path, capsys):
    rows = [
        record("darcy", "fno", relative_l2="0.014", preset="long"),
        record("darcy", "tfno", relative_l2="0.001"),  # another preset
    ]
    records.add(tmp_path / "runs.csv", rows)
    assert main(["table", "1", "--preset", "long", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "**1.40**" in line_of(shown, "| FNO ")
    assert "TFNO" not in shown


def test_short_table_of_the_authors_data(tmp_path, capsys):
    coarse, fine = ({"preset": f"authors-{n}"} for n in (81, 241))
    rows = [
        record("darcy", "fno", s, relative_l2=error, seconds=seconds, **coarse)
        for s, (error, seconds) in enumerate([("0.02", "300"), ("0.04", "240")])
    ]
    rows += [record("darcy", "fno", relative_l2="0.05", **fine)]
    rows += [record("darcy", "dinozaur", relative_l2="0.01", **coarse)]
    records.add(tmp_path / "runs.csv", rows)
    assert main(["table", "authors-short", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    cells = line_of(shown, "| FNO ").replace(" ", "").split("|")
    assert cells[3:6] == ["3.00±1.41", "5.00", "4.0"]
    complex_weights = 4 * 24 * 24 * 12 * 7  # blocks, channels, modes
    assert complex_weights * 2 < int(cells[2].replace(",", "")) < complex_weights * 2.1
    assert "DINOZAUR" not in shown  # not tested at 241²
