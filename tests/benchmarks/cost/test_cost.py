"""The studies of cost: one runner, and each study as a smoke test."""

import os
import signal

import pytest
import torch
from support.runs import is_png

from benchmarks import tables
from benchmarks.__main__ import main
from benchmarks.cost import (
    command,
    gno,
    layers,
    measure,
    steps,
    tradeoff,
)
from benchmarks.cost.command import STUDIES
from benchmarks.cost.measure import Setup, in_own_process
from benchmarks.experiments import find_experiment
from benchmarks.tables import records


def run_smoke(folder, *words):
    options = ["--smoke", "--rounds", "1", "--threads", "1", "--out", str(folder)]
    assert main(["cost", *words, *options]) == 0
    return {p.stem: tables.read_csv(p) for p in folder.glob("*.csv")}


def killed(*_):
    """End as the system ends a process that takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def failing():
    raise RuntimeError("no room\nat all")


def test_layers_and_models_are_the_default(tmp_path):
    found = run_smoke(tmp_path)
    assert set(found) == {"cost", "cost_models"}
    for name, rows in found.items():
        assert is_png(tmp_path / f"{name}.png")
        reference = [row for row in rows if row["layer"] == layers.REFERENCE]
        assert [row["ratio_forward_backward"] for row in reference] == ["1.000"]
        assert {row["layer"] for row in rows} >= {"dense", "dinozaur"}
        assert all(row["cpu"] and row["torch"] and row["date"] for row in rows)
        assert {(row["device"], row["mode"]) for row in rows} == {("cpu", "float32")}
        assert all(float(row["load"]) >= 0 for row in rows)
        assert [row["spread"] for row in reference] == ["0.000"]


def test_other_precisions(tmp_path):
    before = torch.get_float32_matmul_precision()
    for precision in ("bf16", "tf32"):
        folder = tmp_path / precision
        rows = run_smoke(folder, "layers", "--precision", precision)["cost"]
        assert {row["mode"] for row in rows} == {precision}
    assert torch.get_float32_matmul_precision() == before


def test_compiled(tmp_path, monkeypatch):
    compiled = []

    def compile_(module):
        compiled.append(module)
        return module

    monkeypatch.setattr(torch, "compile", compile_)
    rows = run_smoke(tmp_path, "models", "--compile")["cost_models"]
    assert {row["mode"] for row in rows} == {"float32, compiled"}
    assert len(compiled) == len(layers.MODELS)


def test_setup_decides_where_and_how():
    with Setup(1, "meta").active():
        assert torch.empty(1).device.type == "meta"
    with Setup(1, precision="bf16").active():
        assert torch.is_autocast_enabled("cpu")
    with Setup(1, precision="tf32").active():
        assert torch.get_float32_matmul_precision() == "high"


def test_spread_is_the_distance_of_the_quartiles():
    mine, theirs = measure.Times(total=[1.0, 2.0, 3.0, 4.0, 5.0]), measure.Times()
    theirs.total = [2.0] * 5
    assert mine.ratio(theirs, "total") == 1.5
    assert mine.spread(theirs, "total") == 1.0


def test_growth_has_one_slope_per_layer(tmp_path):
    rows = run_smoke(tmp_path, "growth")["cost_growth"]
    assert is_png(tmp_path / "cost_growth.png")
    slopes = {(row["over"], row["layer"], row["slope"]) for row in rows}
    assert len(slopes) == 4  # three layers over points, one over kernels
    assert len(rows) == 8
    assert all(float(row["saved_mb"]) > 0 for row in rows)
    # Kernels keep their parameters and nothing else.
    (saved,) = {row["slope_saved"] for row in rows if row["over"] == "kernels"}
    assert 0 < float(saved) < 0.5


def test_steps_of_the_sweep(tmp_path):
    rows = run_smoke(tmp_path, "steps")["cost_steps"]
    assert (rows[0]["model"], rows[0]["ratio"]) == ("fno", "1.000")
    assert {row["model"] for row in rows} == {"fno", "dinozaur"}
    assert is_png(tmp_path / "cost_steps.png")


@pytest.mark.parametrize("dataset", list(steps.STUDY.cases))
def test_steps_know_the_sweep_and_the_shapes_of_all_data_sets(dataset):
    found = steps.swept(dataset)
    assert found[0].model in ("fno", "gino")
    assert {"dinozaur"} <= {experiment.model for experiment in found}
    smoke = find_experiment(dataset, "dinozaur", preset="smoke")
    step = steps.step_of(smoke, *steps.random_batch(smoke))
    step()()


def test_times_and_errors_are_joined(tmp_path, monkeypatch):
    row = dict.fromkeys(records.KEY, "")
    row |= {"dataset": "darcy", "model": "fno", "preset": "short+width=8"}
    more = [row | {"relative_l2": error} for error in ("0.01", "0.03")]
    monkeypatch.setattr(records, "read", lambda path: more)
    time = {"case": "darcy", "step_ms": "5", "parameters": "7"}
    rows = [
        time | {"model": "fno", "preset": "short+width=8"},
        time | {"model": "tfno", "preset": "short+width=8"},
    ]
    (point,) = tradeoff.points_of("darcy", rows)
    assert point.errors == pytest.approx((1.0, 3.0))
    assert (point.step_ms, point.parameters) == (5.0, 7)


def test_sampling(tmp_path, capsys):
    rows = run_smoke(tmp_path, "sampling")["cost_sampling"]
    assert int(rows[0]["draws_together"]) == 2  # one to learn the size, then all
    assert float(rows[0]["predict_s"]) > 0
    assert STUDIES["sampling"].show(rows) in capsys.readouterr().out


def test_gno(tmp_path, monkeypatch):
    first = next(iter(gno.SMOKE.values()))
    monkeypatch.setattr(gno, "LARGEST_MATRIX_GB", first.matrix_gb())
    rows = run_smoke(tmp_path, "gno")["cost_gno"]
    assert [(row["points"], row["layer"]) for row in rows] == [
        (str(case.points), layer)
        for case in gno.SMOKE.values()
        for layer in ("accelerated", "upstream")
    ]
    fast, upstream, _, too_large = rows
    assert fast["neighbours"] == upstream["neighbours"] != "0"
    assert float(fast["times_faster"]) > 0
    assert float(fast["forward_s"]) < float(fast["forward_backward_s"])
    assert float(fast["peak_mb"]) > 50
    assert too_large["note"].startswith("not run: matrix")
    assert too_large["forward_s"] == ""


def test_gno_layer_that_fails_has_a_note(monkeypatch):
    def fail(label, *_):
        raise ValueError(f"{label} ended without a result: killed, most likely")

    monkeypatch.setattr(gno, "in_own_process", fail)
    name, case = next(iter(gno.SMOKE.items()))
    rows = gno.measure(name, case, Setup(1))
    assert {row["note"] for row in rows} == {"failed: killed, most likely"}
    assert {row["forward_s"] for row in rows} == {""}


def test_surface_lies_in_the_unit_cube():
    points = gno.surface(1000)
    assert 0 < points.min() < 0.2
    assert 0.8 < points.max() < 1


def test_a_process_that_fails_or_dies_has_no_result(monkeypatch):
    with pytest.raises(ValueError, match=r"it ended without a result: no room$"):
        in_own_process("it", failing)
    monkeypatch.setattr(measure, "_child", killed)
    with pytest.raises(ValueError, match="result: killed, most likely for lack of"):
        in_own_process("it", dict)


@pytest.mark.parametrize("study", STUDIES)
def test_committed_results_cover_all_cases(study):
    study = STUDIES[study]
    rows = tables.read_csv(tables.RESULTS / study.file)
    found = {study.case_of(row) for row in rows}
    assert set(study.cases) >= found >= set(study.cases) - set(study.on_request)
    assert set(study.columns) <= set(rows[0])


def test_committed_results_cover_all_layers():
    rows = tables.read_csv(tables.RESULTS / "cost.csv")
    assert {(row["case"], row["layer"]) for row in rows} == {
        (case, layer) for case in layers.CASES for layer in layers.LAYERS
    }


def test_results_of_other_cases_are_kept(tmp_path, monkeypatch):
    """Also those without columns that came later; these stay empty."""
    committed = tables.read_csv(tables.RESULTS / "cost.csv")
    for row in committed:
        del row["load"]
    tables.write_csv(tmp_path / "cost.csv", committed)
    old = [row for row in committed if row["case"] == "darcy"]
    new = [{**row, "forward_ms": "1234.5"} for row in old]
    study = layers.LAYER_STUDY
    changed = type(study)(**{**vars(study), "measure": lambda *_: new})
    monkeypatch.setitem(command.STUDIES, "layers", changed)
    words = ["cost", "layers", "--cases", "darcy", "--out", str(tmp_path)]
    assert main(words) == 0
    found = tables.read_csv(tmp_path / "cost.csv")
    assert [row["case"] for row in found] == [row["case"] for row in committed]
    changed = [row for row in found if row["forward_ms"] == "1234.5"]
    assert [row["layer"] for row in changed] == [row["layer"] for row in old]
    others = [row for row in committed if row["case"] != "darcy"]
    others = [{**row, "load": ""} for row in others]
    assert [row for row in found if row["case"] != "darcy"] == others


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "--rounds"),
        (["--threads", "-1"], "--threads"),
        (["--smoke"], "--out"),
        (["--compile"], "--compile makes results"),
        (["--precision", "bf16"], "--precision makes results"),
        (["everything"], "unknown study (=everything): there are layers"),
        (["gno", "--cases", "moon"], "--cases (=moon) is unknown to gno"),
        (["--device", "abacus"], "--device (=abacus) is unknown"),
        (["--device", "meta"], "--device makes results"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    assert main(["cost", *arguments]) == 2
    assert message in capsys.readouterr().err
