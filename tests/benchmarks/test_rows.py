"""The rows of the paper's tables: complete, of the paper's size, and found by name."""

import argparse
import importlib
from dataclasses import replace

import pytest
import torch
from torch import nn

from benchmarks import campaign, records
from benchmarks.__main__ import COMMANDS, MODULES, main
from benchmarks.operators import build, count_parameters
from benchmarks.paper_numbers import ERRORS, PARAMETERS, UNCERTAINTY
from benchmarks.rows import DATASETS, PRESETS, Row, find_row, models_of, table_models
from benchmarks.samples import Samples
from benchmarks.sizes import SIZES, TINY_CAR
from dinozaur_no import MCDropout, VariationalOperator

GRID = torch.stack(torch.meshgrid(*[torch.linspace(0, 1, 8)] * 3, indexing="ij"), -1)


def inputs_of(row):
    """What a tiny model of the row takes, and the shape of what it gives."""
    torch.manual_seed(0)
    if row.dataset == "darcy":
        return {"x": torch.randn(2, 1, 17, 17)}, (2, 1, 17, 17)
    if row.dataset == "navier_stokes":
        return {"x": torch.randn(2, 4, 8, 8, 2)}, (2, 1, 8, 8, 2)
    channels = 1 if row.dataset == "car" else 2
    fields = {
        "in_p": GRID,
        "out_p": torch.rand(12, 3),
        "f": torch.randn(1, 8, 8, 8, channels),
    }
    return fields, (1, 12, 1)


def test_every_line_of_the_tables_is_a_row():
    assert ERRORS.keys() == PARAMETERS.keys()
    for dataset, model in ERRORS:
        assert model in table_models(dataset)
    assert set(UNCERTAINTY) <= set(table_models("car"))
    for dataset in DATASETS:
        assert set(table_models(dataset)) <= set(models_of(dataset))
        assert "separable" in table_models(dataset)
        assert {"dinozaur_d", "dinozaur_l", "dinozaur_b"} <= set(models_of(dataset))


def test_optimisers_of_the_paper():
    free = [(d, m) for d, m in PARAMETERS if Row(d, m).schedule == "schedule-free"]
    assert sorted(free) == [
        *(("ahmed", "gino"), ("ahmed", "gino_g"), ("car", "gino"), ("car", "gino_g")),
        *(("car", "tgino"), ("darcy", "tfno")),
    ]
    assert Row("car", "tgino_d").schedule == "schedule-free"
    rates = {(d, m): Row(d, m).rate for d, m in PARAMETERS}
    assert rates["navier_stokes", "dinozaur"] == 1e-2
    assert rates["ahmed", "dinozaur"] == 5e-3
    assert sorted(set(rates.values())) == [1e-3, 5e-3, 1e-2]
    assert Row("car", "gino", "cpu").rate > Row("car", "dinozaur", "cpu").rate
    assert Row("ahmed", "gino_g", "cpu").rate < Row("ahmed", "gino", "cpu").rate
    assert Row("ahmed", "gino_g", "ahmed-0.03").rate == 3e-2
    assert Row("car", "dinozaur").epochs == 150
    assert Row("car", "dinozaur_b").epochs == 200
    for preset in ("paper", "cpu"):
        rows = [Row("car", model, preset) for model in ("dinozaur_b", "dinozaur")]
        assert 3 * rows[0].epochs == 4 * rows[1].epochs


@pytest.mark.parametrize(("dataset", "model"), PARAMETERS)
def test_parameters_are_as_many_as_in_the_paper(dataset, model):
    """Gradient features are 3 c^2 per layer here and about 2.5 c^2 there."""
    count = count_parameters(Row(dataset, model)) / 1000
    tolerance = 0.02 if model.endswith(("no-g", "o")) else 0.065
    assert count == pytest.approx(PARAMETERS[dataset, model], rel=tolerance)


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_model_runs(dataset):
    for model in models_of(dataset):
        row = find_row(dataset, model, "quick")
        if row.method == "laplace":  # the deterministic model itself
            continue
        inputs, shape = inputs_of(row)
        operator = build(row).eval()
        assert operator(**inputs).shape == shape
        if row.method == "dropout":
            assert len(MCDropout(operator).layers) > 0
        assert isinstance(operator, VariationalOperator) == (row.method == "bayesian")


def test_balanced_start_keeps_what_differs_from_point_to_point(monkeypatch):
    contrast = {}
    for start in ("torch", "balanced"):
        size = replace(TINY_CAR, width=16, start=start)
        monkeypatch.setitem(SIZES, ("car", "quick"), size)
        row = find_row("car", "dinozaur", "quick")
        torch.manual_seed(0)
        operator = build(row).eval()
        seen = []
        last = operator.operator.fno_blocks.channel_mlp[-1]
        last.register_forward_hook(lambda module, args, output: seen.append(output))  # noqa: B023
        with torch.no_grad():
            operator(**inputs_of(row)[0])
        values = seen[0].flatten(2)
        contrast[start] = (values.std(-1).mean() / values.square().mean().sqrt()).item()
    assert contrast["torch"] < 0.05
    assert contrast["balanced"] > 0.2
    pointwise = [m for m in operator.modules() if isinstance(m, nn.Conv1d | nn.Linear)]
    for layer in pointwise:
        assert layer.bias is None or not layer.bias.any()
        inputs = layer.weight[0].numel()
        variance = layer.weight.square().mean().item()
        if layer.weight.numel() > 200:
            assert variance == pytest.approx(1 / inputs, rel=0.5)


def test_padding_of_meshes_is_seen_by_the_fourier_layers_only():
    row = find_row("car", "dinozaur", "quick")
    operator = build(row).eval()
    seen = []
    conv = operator.operator.fno_blocks.convs[0]
    conv.register_forward_hook(lambda module, args, output: seen.append(args[0].shape))
    inputs, shape = inputs_of(row)
    assert operator(**inputs).shape == shape
    assert seen[0][2:] == row.size.padded


def test_neighbours_of_all_geometries_are_remembered():
    row = find_row("car", "dinozaur", "quick")
    search = build(row).operator.gno.neighbor_search
    assert search.cache.capacity == row.size.n_train + row.size.n_test


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["darcy", "dinosaur"],
            "unknown model of darcy (=dinosaur): did you mean dino",
        ),
        (["darci", "fno"], "unknown dataset (=darci): did you mean darcy"),
        (["darcy", "gino"], "unknown model of darcy (=gino)"),
        (["moon", "fno"], "unknown dataset (=moon): there are darcy, navier_stokes"),
        (["darcy", "fno_b"], "unknown model of darcy (=fno_b)"),
    ],
)
def test_unknown_names_list_close_ones(words, message, tmp_path, capsys):
    assert main(["train", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_unknown_preset():
    with pytest.raises(ValueError, match="unknown preset"):
        find_row("darcy", "fno", "gpu")
    assert {Row("darcy", "fno", preset).size.width for preset in PRESETS[:3]} == {
        32,
        24,
        4,
    }


def test_list_shows_counts_beside_the_papers(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert "361185" in shown
    assert "361.4" in shown
    assert "-0.1 %" in shown
    assert main(["list", "--all", "--preset", "cpu"]) == 0
    assert "dinozaur_b" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_help(command):
    module = importlib.import_module(f"benchmarks.{MODULES.get(command, command)}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    assert all(action.help for action in parser._actions)


class FewSamples:
    """Two meshes on one grid, as a dataset."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        torch.manual_seed(index)
        fields = {"in_p": GRID.clone(), "out_p": torch.rand(5 + index, 3)}
        return fields | {"f": torch.randn(8, 8, 8, 1), "y": torch.randn(5 + index, 1)}


class FewSplits:
    def processor(self):
        from benchmarks.data import FieldProcessor

        return FieldProcessor({}, ("in_p", "out_p"))


def test_what_samples_share_is_kept_once():
    samples = Samples(FewSamples(), FewSplits(), "cpu", scaled=True)
    assert samples.items[0]["in_p"] is samples.items[1]["in_p"]
    assert samples.items[0]["f"] is not samples.items[1]["f"]
    inputs, target = samples.batch([1])
    assert set(inputs) == {"in_p", "out_p", "f"}
    assert target.shape == (1, 6, 1)
    assert isinstance(build(find_row("car", "tgino", "quick"))(**inputs), torch.Tensor)
    assert isinstance(samples.processor, nn.Module)


def test_every_result_is_of_its_row_as_it_is_now():
    """A changed setting must not leave results of the former one in the tables."""
    for record in records.read(records.RUNS):
        row = find_row(record["dataset"], record["model"], record["preset"])
        size = row.size
        now = {
            "schedule": row.schedule,
            "learning_rate": str(row.rate),
            "start": size.start,
            "batch": str(size.batch),
            "epochs": str(row.epochs),
            "train": str(size.n_train),
            "test": str(size.held_out or size.n_test),
            "width": str(size.width),
            "modes": "x".join(map(str, size.modes)),
            "parameters": str(count_parameters(row)),
        }
        assert {name: record[name] for name in now} == now, records.key_of(record)


def test_models_go_with_the_datasets_that_have_them():
    jobs = campaign.all_jobs([], ["gino", "dinozaur"], "cpu", [0])
    assert [(row.dataset, row.model) for row, _ in jobs] == [
        *(("darcy", "dinozaur"), ("navier_stokes", "dinozaur")),
        *(("car", "gino"), ("car", "dinozaur")),
        *(("ahmed", "gino"), ("ahmed", "dinozaur")),
    ]
    with pytest.raises(ValueError, match="unknown model of darcy"):
        campaign.all_jobs(["darcy"], ["gino"], "cpu", [0])
    with pytest.raises(ValueError, match=r"--models \(=gina\) is unknown: .*gino"):
        campaign.all_jobs([], ["gina"], "cpu", [0])
    whole = campaign.all_jobs([], [], "cpu", [0, 1])
    assert len(whole) == 2 * sum(len(table_models(dataset)) for dataset in DATASETS)


def test_commands_are_listed(capsys):
    assert main([]) == 2
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n  {command} " in shown
