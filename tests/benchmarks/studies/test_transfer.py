"""The study of weights that carry over: a smoke test end to end, models, table."""

import dataclasses

import pytest
import torch
from support.runs import is_png

from benchmarks import tables
from benchmarks.__main__ import main
from benchmarks.studies import transfer, transfer_report
from benchmarks.training.loop import Run


def words(tmp_path, out="out"):
    place = ["--out", str(tmp_path / out), "--cache", str(tmp_path / "cache")]
    return ["transfer", "--smoke", *place, "--seeds"]


def test_smoke_study_trains_what_is_missing(tmp_path, capsys):
    path = tmp_path / "out" / "transfer.csv"
    assert main([*words(tmp_path), "0", "--dry-run"]) == 0
    assert "12 runs are left" in capsys.readouterr().out
    assert main([*words(tmp_path), "0", "--arms", "carried", "fno"]) == 0
    first = tables.read_csv(path)
    assert len(first) == 2 * (len(transfer.RATES) + 1)
    assert main([*words(tmp_path), "0"]) == 0
    rows = tables.read_csv(path)
    assert len(rows) == 12
    assert all(row in rows for row in first)
    printed = capsys.readouterr().out
    assert transfer_report.show(rows) in printed
    assert is_png(tmp_path / "out" / "transfer.png")
    assert main([*words(tmp_path), "0"]) == 0
    assert "0 runs are left" in capsys.readouterr().out
    for arm in transfer.ARMS:
        own = [row for row in rows if row["arm"] == arm]
        tried = {r["learning_rate"]: r for r in own if r["judged_on"] == "held-out"}
        assert len(tried) == len(transfer.RATES)
        best = min(tried, key=lambda rate: float(tried[rate]["relative_l2"]))
        (result,) = (r for r in own if r["judged_on"] == "test")
        assert result["learning_rate"] == best
        assert len(result["by_epoch"].split()) == int(result["epochs"]) == 2


def test_numbers_of_samples_that_no_problem_has(tmp_path, capsys):
    assert main([*words(tmp_path), "0", "--train", "7"]) == 2
    assert "--train (=7) must be one of 16" in capsys.readouterr().err


def test_interrupted_run_resumes_to_the_same_numbers(tmp_path, monkeypatch):
    only = ["0", "--arms", "carried"]
    assert main([*words(tmp_path, "whole"), *only]) == 0
    run_epoch = Run.run_epoch

    def interrupted(self, bar):
        if len(self.log) == 1 and self.recipe.name.endswith("test"):
            raise KeyboardInterrupt
        run_epoch(self, bar)

    monkeypatch.setattr(Run, "run_epoch", interrupted)
    assert main([*words(tmp_path, "again"), *only]) == 130
    monkeypatch.setattr(Run, "run_epoch", run_epoch)
    assert main([*words(tmp_path, "again"), *only]) == 0
    whole, again = (
        tables.read_csv(tmp_path / name / "transfer.csv") for name in ("whole", "again")
    )
    for row in (*whole, *again):
        del row["seconds"]
    assert whole == again


@pytest.mark.parametrize("name", transfer.FULL)
def test_models_of_all_problems(name):
    problem = transfer.FULL[name]
    torch.manual_seed(0)
    source = transfer.build(problem.source, "scratch")
    scratch, carried, frozen, fno = (
        transfer.build(problem.target, arm, model)
        for arm, model in (
            ("scratch", None),
            ("carried", source),
            ("frozen", source),
            ("fno", None),
        )
    )
    times = [m.fno_blocks.convs[0].raw_time for m in (source, carried, frozen)]
    assert all(torch.equal(time, times[0]) for time in times)
    assert [time.requires_grad for time in times] == [True, True, False]
    sizes = [sum(p.numel() for p in m.parameters()) for m in (scratch, carried, frozen)]
    assert len(set(sizes)) == 1
    assert sum(p.numel() for p in fno.parameters()) > 5 * sizes[0]
    points = problem.target.settings.get("points", problem.target.settings["size"])
    assert max(problem.target.modes) <= points


def test_held_out_samples_are_neither_for_training_nor_for_tests():
    for problem in transfer.FULL.values():
        assert max(problem.epochs) <= problem.target.samples
        same = problem.source.name == problem.target.name
        if same and problem.source.name == "navier_stokes":
            # Both flows begin alike, so what is held out is unknown to the source too.
            assert problem.source.samples <= problem.target.samples


def row(arm, n, seed, errors):
    return {
        "problem": "cube",
        "arm": arm,
        "train": str(n),
        "seed": str(seed),
        "judged_on": "test",
        "relative_l2": str(errors[-1]),
        "by_epoch": " ".join(map(str, errors)),
        **dict.fromkeys(("test", "width", "batch", "cpu", "torch", "date"), "x"),
        "parameters": "7",
    }


def test_table_has_gain_and_epochs():
    rows = [
        row("scratch", 16, 0, [0.5, 0.4, 0.3]),
        row("scratch", 16, 1, [0.5, 0.4, 0.1]),
        row("carried", 16, 0, [0.3, 0.2, 0.2]),
        row("carried", 16, 1, [0.3, 0.2, 0.1]),
        row("fno", 16, 0, [0.9, 0.8, 0.7]),
    ]
    shown = transfer_report.show(rows)
    line = shown.splitlines()[2]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:5] == ["16", "20.00 ± 14.14", "15.00 ± 7.07", "-"]
    assert cells[5:] == ["70.00 ± 0.00", "25 %", "2 of 3 epochs"]
    never = [row("scratch", 16, 0, [0.1]), row("carried", 16, 0, [0.2])]
    cells = transfer_report.show(never).splitlines()[2].split("|")
    assert [cell.strip() for cell in cells[-3:-1]] == ["-100 %", "-"]


def test_settings_are_part_of_a_run():
    """A changed problem does not resume the runs of another one."""
    job = transfer.Job("cube", "carried", 16, 0)
    assert str(job) != str(dataclasses.replace(job, seed=1))
    assert str(transfer.SQUARE) != str(transfer.FINE)
