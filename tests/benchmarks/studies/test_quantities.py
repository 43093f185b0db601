"""The study of quantities: smoke tests end to end, functions, scores and tables."""

import math

import numpy as np
import pytest
import torch
from support.runs import is_png

from benchmarks import tables
from benchmarks.__main__ import main
from benchmarks.data.generators.car import CAR
from benchmarks.data.generators.meshes import box_surface
from benchmarks.studies import quantities, quantities_table
from benchmarks.studies.quantities_bodies import body_functions
from benchmarks.studies.quantities_darcy import SHIFTS, block_means, boundary_flux
from benchmarks.studies.quantity_scores import (
    NOISES,
    POINTS,
    Batch,
    noises_of,
    remembering,
    scores,
)
from benchmarks.training.loop import Run
from dinozaur_no import Deterministic, MCDropout, field_mean
from dinozaur_no.uncertainty import amplitude


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Let amplitudes take few steps."""
    monkeypatch.setattr(amplitude, "_STEPS", 5)


def test_smoke_study_of_darcy(tmp_path, capsys):
    words = ["quantities", "darcy", "--smoke", "--out", str(tmp_path)]
    words += ["--cache", str(tmp_path / "cache"), "--seeds", "0", "--jobs"]
    assert main([*words, "deterministic"]) == 0
    first = tables.read_csv(tmp_path / "quantities.csv")
    assert main([*words, "deterministic", "bayesian"]) == 0
    rows = tables.read_csv(tmp_path / "quantities.csv")
    assert [r for r in rows if r["method"] != "bayesian"] == [
        r for r in first if r["method"] != "bayesian"
    ]
    kinds = {(r["test"], r["quantity"]) for r in rows}
    names = {POINTS, "mean", "block means", "maximum", "flux"}
    assert kinds == {(test, name) for test in SHIFTS for name in names}
    methods = {r["method"] for r in rows}
    assert methods == {"deterministic", "laplace", "bayesian"}
    assert all(0 <= float(r["coverage_90"]) <= 1 for r in rows)
    shown = quantities_table.show(rows, "darcy")
    assert shown in capsys.readouterr().out
    assert main([*words, "deterministic", "bayesian"]) == 0
    assert "0 of 2 jobs are left" in capsys.readouterr().out
    assert is_png(tmp_path / "quantities.png")
    pictures = list(tmp_path.glob("bayesian_*.png"))
    assert len(pictures) == 6
    assert all(map(is_png, pictures))
    intervals = tables.read_csv(tmp_path / "quantities_intervals.csv")
    assert {r["noise"] for r in intervals} == {"white", "correlated"}
    assert main([*words, "other"]) == 2
    assert "unknown job (=other) of darcy" in capsys.readouterr().err


def test_smoke_study_of_bodies(tmp_path):
    words = ["quantities", "ahmed", "--smoke", "--out", str(tmp_path)]
    words += ["--cache", str(tmp_path / "cache"), "--seeds", "0", "--jobs", "bayesian"]
    assert main(words) == 0
    rows = tables.read_csv(tmp_path / "quantities.csv")
    names = {POINTS, "drag", "front drag", "lift", "suction"}
    kinds = {(r["test"], r["quantity"]) for r in rows}
    assert kinds == {(test, name) for test in ("test", "outside") for name in names}
    assert {r["noise"] for r in rows} == set(NOISES)


def test_other_processes_keep_their_jobs(tmp_path, capsys):
    words = ["quantities", "darcy", "--smoke", "--out", str(tmp_path)]
    words += ["--seeds", "0", "--jobs", "dropout"]
    with quantities.locked(tmp_path / "quantities-darcy-dropout-seed0"):
        assert main(words) == 0
    assert "other processes work on all that is left" in capsys.readouterr().out
    assert not (tmp_path / "quantities.csv").exists()


def test_flux_and_block_means_of_known_fields():
    x = torch.linspace(0, 1, 31)
    field = (3 * x[:, None] + 0 * x).view(1, 1, 1, 31, 31)
    coefficient = torch.ones(1, 1, 31, 31)
    coefficient[..., 16:] = 3
    flux = boundary_flux(coefficient)(field)
    assert flux.shape == (1, 1, 1)
    assert flux.item() == pytest.approx(3 * (16 + 3 * 15) / 31)
    blocks = block_means(field[..., :30, :30])
    expected = 3 * (torch.tensor([4.5, 14.5, 24.5]) / 30).repeat_interleave(3)
    torch.testing.assert_close(blocks[0, 0, 0], expected)


class Zero(torch.nn.Module):
    def forward(self, x):
        return 0 * x


class Scale:
    def inverse_transform(self, x):
        return 2 * x


def test_scores_of_a_known_error():
    """Errors are constants of deviation 2: white noise is too narrow for means."""
    torch.manual_seed(0)
    x = torch.randn(60, 1, 8, 8)
    target = 2 * torch.randn(60, 1, 1, 1).expand(x.shape)
    parts = zip(x.split(20), target.split(20), strict=True)
    batches = [Batch({"x": a}, u, {"mean": field_mean}) for a, u in parts]
    operator = Deterministic(Zero(), noise_variance=1.0)
    found = dict(scores(operator, batches, Scale(), 0, 4))
    assert found[POINTS]["coverage_90"] == pytest.approx(0.9, abs=0.1)
    assert found["mean"]["coverage_90"] < 0.3
    assert found["mean"]["width_90"] == pytest.approx(2 * 1.645 * 2 / 8, rel=0.1)
    std = 2 / 8
    truth = field_mean(target[None])[0]
    nll = (truth / std).square().mean() / 2 + math.log(std * math.sqrt(2 * math.pi))
    assert found["mean"]["nll"] == pytest.approx(nll.item(), rel=0.15)


def test_rows_of_other_versions_are_replaced(tmp_path):
    row = dict.fromkeys((*quantities_table.KEY, "version"), "0")
    row |= {"method": "dropout", "noise": "white"}
    path = tmp_path / "quantities.csv"
    tables.write_csv(path, [{**row, "version": "1"}])
    assert quantities.saved(path) == []
    quantities.add(path, [{**row, "version": quantities.VERSION, "seed": "1"}])
    assert [r["seed"] for r in tables.read_csv(path)] == ["1"]


def test_plain_table():
    assert "No results yet" in quantities_table.plain([])
    assert "No results yet" in quantities_table.show([], "car")


def test_interrupted_run_resumes_to_the_same_numbers(tmp_path, monkeypatch):
    words = ["quantities", "darcy", "--smoke", "--cache", str(tmp_path / "cache")]
    words += ["--seeds", "1", "--jobs", "dropout", "--out"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    run_epoch = Run.run_epoch

    def interrupted(self, bar):
        if len(self.log) == 2:
            raise KeyboardInterrupt
        run_epoch(self, bar)

    monkeypatch.setattr(Run, "run_epoch", interrupted)
    assert main([*words, str(tmp_path / "again")]) == 130
    monkeypatch.setattr(Run, "run_epoch", run_epoch)
    assert main([*words, str(tmp_path / "again")]) == 0
    whole, again = (
        tables.read_csv(tmp_path / name / "quantities.csv")
        for name in ("whole", "again")
    )
    assert whole == again


def test_forces_of_a_box():
    """A linear pressure acts as buoyancy: minus volume times slope."""
    vertices, triangles = box_surface((8, 8, 8))
    low, high = np.array(CAR.bounds)
    sample = {"vertices": (vertices + 1) / 2, "triangles": triangles}
    functions = body_functions(sample, CAR)
    place = torch.from_numpy(low + (high - low) * (vertices + 1) / 2)
    pressure = (2 * place[:, 0] + 3 * place[:, 2]).view(1, 1, -1, 1)
    volume = np.prod(high - low)
    assert functions["drag"](pressure).item() == pytest.approx(-2 * volume)
    assert functions["lift"](pressure).item() == pytest.approx(-3 * volume)
    assert functions["suction"](pressure).item() == pytest.approx(
        -pressure.min().item()
    )


def test_samples_are_shared():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Dropout(0.5))
    build = remembering(lambda noise: MCDropout(model, noise=noise), {})
    x, other = torch.ones(2, 1, 8, 8), torch.ones(2, 1, 8, 8)
    first, second = (build(None).predict(x, n_samples=5) for _ in range(2))
    assert torch.equal(first.samples, second.samples)
    assert not torch.equal(
        first.samples, build(None).predict(other, n_samples=5).samples
    )


def test_noises():
    assert noises_of("deterministic", ()) == ["white", "correlated"]
    assert "tempered" in noises_of("bayesian", ())
    assert "amplitude" in noises_of("deterministic", ("deterministic",))
