"""The demo: end to end in its quick mode, and its table in the README."""

import argparse
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import demo, tables
from benchmarks.__main__ import COMMANDS, main
from benchmarks.training import (
    Budget,
    PaddedOperator,
    Scaler,
    Training,
    megabytes_kept_for_backward,
    relative_l2,
    train_together,
)

ROOT = Path(__file__).parents[2]


def test_quick_demo_end_to_end(tmp_path, capsys):
    committed = [path.read_bytes() for path in (demo.CSV, demo.PICTURE, demo.README)]
    cache = tmp_path / "cache"
    status = main(["demo", "--quick", "--out", str(tmp_path), "--cache", str(cache)])
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
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert committed == [
        path.read_bytes() for path in (demo.CSV, demo.PICTURE, demo.README)
    ]


def test_quick_demo_repeats_itself_and_writes_only_when_told(tmp_path, capsys):
    errors = []
    for _ in range(2):
        assert main(["demo", "--quick", "--epochs", "1", "--cache", str(tmp_path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        rows = [line.split("|")[1:4] for line in lines if line.startswith("|")]
        errors.append(rows)
    assert errors[0] == errors[1]
    assert {path.suffix for path in tmp_path.iterdir()} == {".h5"}


def test_readme_shows_the_committed_results():
    readme = demo.README.read_text(encoding="utf-8")
    shown = readme.partition("<!-- demo-table:start -->\n")[2]
    shown = shown.partition("\n<!-- demo-table:end -->")[0]
    assert shown == demo.show(tables.read_csv(demo.CSV))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "--epochs (=0) must be at least 1"),
        (["--train", "-3"], "--train (=-3) must be at least 1"),
        (["--stride", "7"], "stride (=7) must divide size - 1"),
        (["--quick", "--publish"], "leave out --quick"),
    ],
)
def test_user_errors_take_one_line(words, message, capsys):
    assert main(["demo", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_unknown_command_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fly"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert all(name in error for name in COMMANDS)


def test_grid_is_padded_to_an_even_size():
    for points in range(4, 300):
        padded = demo.even_padded_size(points)
        assert padded % 2 == 0
        assert 11 * points <= 10 * padded < 11 * points + 40


def test_padded_operator_pads_at_the_far_end_and_crops():
    x = torch.rand(2, 1, 5, 5)
    seen = []

    def operator(field):
        seen.append(field)
        return 2 * field

    model = PaddedOperator(_Function(operator), padded=8)
    torch.testing.assert_close(model(x), 2 * x)
    assert seen[0].shape == (2, 1, 8, 8)
    torch.testing.assert_close(seen[0][..., :5, :5], x)
    torch.testing.assert_close(seen[0].sum(), x.sum())


def test_scaler_inverts_and_standardises():
    field = 3 + 5 * torch.rand(4, 1, 6, 6)
    scaler = Scaler(field)
    scaled = scaler.encode(field)
    torch.testing.assert_close(scaled.mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(), torch.tensor(1.0))
    torch.testing.assert_close(scaler.decode(scaled), field)


def test_relative_l2_is_per_sample():
    truth = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    expected = torch.tensor([1.0, 0.5])
    error = relative_l2(torch.tensor([[0.0, 0.0], [1.0, 2.0]]), truth)
    torch.testing.assert_close(error, expected)


def test_training_gives_every_model_the_same():
    x = torch.randn(64, 1, 4, 4)
    models, trainings = {}, {}
    budget = Budget(epochs=40, rate=0.1)
    for name in ("one", "other"):
        torch.manual_seed(1)
        models[name] = nn.Conv2d(1, 1, 1)
        trainings[name] = Training(models[name], x, 0.5 * x + 1, budget)
    seconds = train_together(trainings, budget.epochs)
    assert seconds.keys() == models.keys()
    assert relative_l2(models["one"](x), 0.5 * x + 1).mean() < 1e-2
    torch.testing.assert_close(
        models["one"].state_dict(), models["other"].state_dict(), rtol=0, atol=0
    )


def test_memory_counts_each_storage_once_and_no_parameter():
    x = torch.zeros(10, 100)  # 4000 bytes
    weight = nn.Linear(100, 100, bias=False)
    # The linear map keeps x (its weight is a parameter), the square its own input.
    squared = _Function(lambda field: weight(field) ** 2)
    squared.weight = weight
    assert megabytes_kept_for_backward(squared, x) == pytest.approx(0.008)
    doubled = _Function(lambda field: weight(field) * weight(field[:5]).sum())
    doubled.weight = weight  # both maps keep x, or a view of it: counted once
    assert megabytes_kept_for_backward(doubled, x) == pytest.approx(0.008, abs=1e-5)


def test_markers_are_required_and_the_rest_is_kept(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- t:start -->\nold\n<!-- t:end -->\nb\n")
    tables.replace_between_markers(page, "t", "new")
    assert page.read_text() == "a\n<!-- t:start -->\nnew\n<!-- t:end -->\nb\n"
    with pytest.raises(ValueError, match="other:start"):
        tables.replace_between_markers(page, "other", "new")


def test_every_option_has_help():
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    assert all(action.help for action in parser._actions)


class _Function(nn.Module):
    """A module that calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)
