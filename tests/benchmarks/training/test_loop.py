"""The training loop: killed and resumed, shared by processes."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from support.runs import ENVIRONMENT, log_of
from torch import nn

from benchmarks import tables
from benchmarks.data.splits import Splits
from benchmarks.experiments import Experiment
from benchmarks.tables import records
from benchmarks.training import loop
from benchmarks.training.devices import launch_device
from benchmarks.training.recipes import Phase, Recipe, recipe_of
from benchmarks.training.samples import load_splits


@pytest.mark.parametrize(
    ("names", "epochs"), [("darcy dinozaur bayesian", 13), ("darcy tfno", 2)]
)
def test_killed_and_started_again_it_ends_with_the_same_bits(
    names, epochs, train, options, tmp_path
):
    """In the second phase of a posterior; with the two sets of Schedule-Free."""
    assert train(names, tmp_path / "whole", "--epochs", "24") == 0
    dataset, model, *kind = names.split()
    killed = tmp_path / "killed"
    folder = "-".join([*names.split(), "smoke-seed0"])
    log = killed / folder / "log.csv"
    kind = ["--uncertainty", *kind] if kind else []
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks", "train", dataset, model, *kind),
            *(*options, "--out", str(killed), "--epochs", "24"),
        ],
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 300
        while not (log.exists() and len(tables.read_csv(log)) >= epochs):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finished = len(tables.read_csv(log))
    assert epochs <= finished < 24, "it was too quick to be killed"
    assert not (killed / "runs.csv").exists()
    assert train(names, killed, "--epochs", "24") == 0
    assert log_of(killed / folder) == log_of(tmp_path / "whole" / folder)
    results = [records.read(out / "runs.csv") for out in (killed, tmp_path / "whole")]
    metrics = [[[r[m] for m in records.METRICS] for r in rows] for rows in results]
    assert metrics[0] == metrics[1]
    states = [
        torch.load(out / folder / "last.pt", weights_only=True)["model"]
        for out in (killed, tmp_path / "whole")
    ]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(
    ("names", "tolerance"),
    [("darcy dinozaur", 1e-5), ("darcy tfno", 1e-5), ("darcy dinozaur bayesian", 5e-3)],
)
def test_two_processes_train_like_one(names, tolerance, train, options, tmp_path):
    """Of 10 samples in batches of 4 the last one is smaller.

    The noise of a Bayesian model is that of the first process, fitted to its share of
    each batch. The loss depends on it a little.
    """
    assert train(names, tmp_path / "one") == 0
    dataset, model, *kind = names.split()
    kind = ["--uncertainty", *kind] if kind else []
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run(
        [
            *(*launcher, "--master-port", "0", "--standalone"),
            *("-m", "benchmarks", "train", dataset, model, *kind, *options),
            *("--out", str(tmp_path / "two")),
        ],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder = "-".join([*names.split(), "smoke-seed0"])
    logs = [log_of(tmp_path / out / folder) for out in ("one", "two")]
    for one, two in zip(*logs, strict=True):
        for column in one:
            expected = pytest.approx(float(one[column]), rel=tolerance)
            assert float(two[column]) == expected
    assert records.read(tmp_path / "two" / "runs.csv")[0]["processes"] == "2"


def test_batch_of_one_cannot_be_shared(cache):
    experiment = Experiment("car", "dinozaur", "none", "smoke")
    fabric = SimpleNamespace(device="cpu", world_size=2)
    splits = load_splits(experiment, cache)
    with pytest.raises(ValueError, match="batch of 1 cannot be shared by 2 processes"):
        loop.Run(fabric, recipe_of(experiment), splits, 0)


class Line:
    """Samples of ``y = x / 2 + 1``."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        x = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(index))
        return {"input": x, "y": 0.5 * x + 1}


class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 1)

    def forward(self, input):
        return self.conv(input)


def test_models_that_take_turns_are_trained_alike():
    dataset = type("Dataset", (Line,), {"source": "line"})()
    splits = Splits(dataset, dataset)
    runs = [
        loop.Run(
            launch_device("cpu"),
            Recipe(name, Affine, [Phase(0, 40, 0.1)], 16),
            splits,
            1,
        )
        for name in ("one", "other")
    ]
    loop.train(runs, "test")
    one, other = (training.model.state_dict() for training in runs)
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    for training in runs:
        assert training.finished
        assert training.log[-1]["relative_l2"] < 1e-2
        assert all(e["train_seconds"] <= e["seconds"] for e in training.log)
        output, target = training.predict([0, 1])
        torch.testing.assert_close(output, target, rtol=0.05, atol=0.05)
