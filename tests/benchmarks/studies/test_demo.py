"""The demo: end to end as a smoke test, resumed, and its table in the tutorial."""

import numpy as np
import pytest
from support.runs import is_png
from torch import nn

from benchmarks import tables
from benchmarks.__main__ import main
from benchmarks.studies import demo
from benchmarks.studies.darcy import even_padded_size
from benchmarks.studies.demo_picture import Intervals
from benchmarks.training.loop import Run
from benchmarks.training.recipes import begin
from dinozaur_no import BayesianDiffusionConv, VariationalOperator


def test_smoke_demo_end_to_end(tmp_path, capsys):
    committed = [path.read_bytes() for path in (demo.CSV, demo.PICTURE, demo.PAGE)]
    cache = tmp_path / "cache"
    status = main(["demo", "--smoke", "--out", str(tmp_path), "--cache", str(cache)])
    assert status == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        *("cache", "demo.csv", "demo.png")
    }
    rows = tables.read_csv(tmp_path / "demo.csv")
    assert [row["model"] for row in rows] == ["FNO", "TFNO", "DINOZAUR", "Bayesian"]
    for row in rows:  # two test fields, of 289 points each
        assert 0 < int(row["points_inside_90"].removesuffix(" %")) <= 100
        assert row["means_inside_90"] in ("0 %", "50 %", "100 %")
    needed = {*demo.COLUMNS, "seed", "torch", "neuraloperator", "dinozaur_no"}
    assert needed | {"cpu", "threads", "date", "epochs", "train"} <= rows[0].keys()
    parameters = {row["model"]: int(row["parameters"]) for row in rows}
    assert parameters["DINOZAUR"] < parameters["TFNO"] < parameters["FNO"]
    assert all(float(row["relative_l2_in_1e-2"]) > 0 for row in rows)
    assert all(float(row["mb_kept_for_backward"]) > 0 for row in rows)
    printed = capsys.readouterr().out
    assert demo.show(rows) in printed
    assert printed.endswith(f"{demo.NEXT}\n")
    assert is_png(tmp_path / "demo.png")
    assert committed == [
        path.read_bytes() for path in (demo.CSV, demo.PICTURE, demo.PAGE)
    ]


def test_demo_with_moving_kernels(tmp_path):
    """Before the Bayesian model, whose error bars the picture shows."""
    words = ["--smoke", "--epochs", "1", "--transport", "--out", str(tmp_path)]
    assert main(["demo", *words, "--cache", str(tmp_path / "cache")]) == 0
    rows = tables.read_csv(tmp_path / "demo.csv")
    assert [row["model"] for row in rows][-2:] == ["Transport", "Bayesian"]


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
    same = ("model", "parameters", "relative_l2_in_1e-2", "means_inside_90")
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
        (["--quick", "--publish"], "leave out --smoke, --quick"),
    ],
)
def test_user_errors_take_one_line(words, message, capsys):
    assert main(["demo", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_posterior_has_a_learning_rate_of_its_own():
    (bayesian,) = demo.recipe_of("Bayesian", nn.Identity, 2).phases
    model = VariationalOperator(BayesianDiffusionConv(2, 2, (4,)))
    rates = {id(p): g["lr"] for g in begin(bayesian, model) for p in g["params"]}
    layer = model.model
    assert rates[id(layer.gradient_weight)] == demo.RATE
    assert rates[id(layer.mix_weight)] == demo.RATE
    assert rates[id(layer.raw_time)] == demo.POSTERIOR_RATE
    assert rates[id(layer.raw_scale)] == demo.POSTERIOR_RATE
    assert layer.raw_scale.requires_grad


def test_noise_is_fitted_to_fields_that_are_neither_trained_nor_tested_on(tmp_path):
    splits, held_out = demo.load_data(demo.SMOKE, tmp_path)
    parts = {"train": splits.train, "held out": held_out, "test": splits.test}
    assert {name: len(part) for name, part in parts.items()} == {
        **{"train": 8, "held out": 8, "test": 2}
    }
    fields = [tuple(s["y"].flatten().tolist()) for part in parts.values() for s in part]
    assert len(set(fields)) == len(fields)


def test_true_values_inside_intervals_are_counted():
    low, high, truth = np.array([[0, 1, 2, 3], [1, 2, 3, 4], [0.5, 2.5, 2, 3.9]])
    assert Intervals(low, high, truth).share_inside == 0.75


def test_grid_is_padded_to_an_even_size():
    for points in range(4, 300):
        padded = even_padded_size(points)
        assert padded % 2 == 0
        assert 11 * points <= 10 * padded < 11 * points + 40
