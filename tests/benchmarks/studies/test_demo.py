"""The demo: end to end as a smoke test, resumed, and its table in the README."""

import pytest
from support.runs import is_png

from benchmarks import tables
from benchmarks.__main__ import main
from benchmarks.studies import demo
from benchmarks.studies.darcy import even_padded_size
from benchmarks.training.loop import Run


def test_smoke_demo_end_to_end(tmp_path, capsys):
    committed = [path.read_bytes() for path in (demo.CSV, demo.PICTURE, demo.README)]
    cache = tmp_path / "cache"
    status = main(["demo", "--smoke", "--out", str(tmp_path), "--cache", str(cache)])
    assert status == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        *("cache", "demo.csv", "demo.png")
    }
    rows = tables.read_csv(tmp_path / "demo.csv")
    assert [row["model"] for row in rows] == ["FNO", "TFNO", "DINOZAUR", "Bayesian"]
    assert [bool(row["coverage_90"]) for row in rows] == [False, False, False, True]
    needed = {*demo.COLUMNS, "seed", "torch", "neuraloperator", "dinozaur_no"}
    assert needed | {"cpu", "threads", "date", "epochs", "train"} <= rows[0].keys()
    parameters = {row["model"]: int(row["parameters"]) for row in rows}
    assert parameters["DINOZAUR"] < parameters["TFNO"] < parameters["FNO"]
    assert all(float(row["relative_l2_in_1e-2"]) > 0 for row in rows)
    assert all(float(row["mb_kept_for_backward"]) > 0 for row in rows)
    assert demo.show(rows) in capsys.readouterr().out
    assert is_png(tmp_path / "demo.png")
    assert committed == [
        path.read_bytes() for path in (demo.CSV, demo.PICTURE, demo.README)
    ]


def test_demo_with_moving_kernels(tmp_path):
    """Before the Bayesian model, whose spread the picture shows."""
    words = ["--smoke", "--epochs", "1", "--transport", "--out", str(tmp_path)]
    assert main(["demo", *words, "--cache", str(tmp_path / "cache")]) == 0
    rows = tables.read_csv(tmp_path / "demo.csv")
    assert [row["model"] for row in rows][-2:] == ["Transport", "Bayesian"]
    assert [bool(row["coverage_90"]) for row in rows][-2:] == [False, True]


def test_smoke_demo_repeats_itself_and_writes_only_when_told(tmp_path, capsys):
    errors = []
    for _ in range(2):
        assert main(["demo", "--smoke", "--epochs", "1", "--cache", str(tmp_path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        rows = [line.split("|")[1:4] for line in lines if line.startswith("|")]
        errors.append(rows)
    assert errors[0] == errors[1]
    assert {path.suffix for path in tmp_path.iterdir()} == {".h5"}


def test_interrupted_demo_resumes_to_the_same_numbers(tmp_path, monkeypatch, capsys):
    words = ["demo", "--smoke", "--cache", str(tmp_path / "cache"), "--out"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    run_epoch, epochs = Run.run_epoch, []

    def interrupted(self, bar):
        if len(epochs) == 5:
            raise KeyboardInterrupt
        epochs.append(self.recipe.name)
        run_epoch(self, bar)

    monkeypatch.setattr(Run, "run_epoch", interrupted)
    assert main([*words, str(tmp_path / "again")]) == 130
    assert epochs == [*demo.MODELS, "FNO"]  # models take turns
    monkeypatch.setattr(Run, "run_epoch", run_epoch)
    assert main([*words, str(tmp_path / "again")]) == 0
    same = ("model", "parameters", "relative_l2_in_1e-2", "coverage_90")
    whole, again = (
        [[row[name] for name in same] for row in tables.read_csv(path)]
        for path in (tmp_path / "whole" / "demo.csv", tmp_path / "again" / "demo.csv")
    )
    assert whole == again
    assert not list((tmp_path / "again").glob("demo-runs*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "--epochs (=0) must be at least 1"),
        (["--train", "-3"], "--train (=-3) must be at least 1"),
        (["--stride", "7"], "stride (=7) must divide size - 1"),
        (["--smoke", "--publish"], "leave out --smoke"),
    ],
)
def test_user_errors_take_one_line(words, message, capsys):
    assert main(["demo", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_grid_is_padded_to_an_even_size():
    for points in range(4, 300):
        padded = even_padded_size(points)
        assert padded % 2 == 0
        assert 11 * points <= 10 * padded < 11 * points + 40
