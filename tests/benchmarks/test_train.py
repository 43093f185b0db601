"""One training loop: killed and continued, shared by processes, recorded safely."""

import csv
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.test_paper_tables import record
from torch import nn

from benchmarks import checkpoints, records, tables
from benchmarks.__main__ import main
from benchmarks.fitting import Fitting, check_same, size_of
from benchmarks.locks import locked
from benchmarks.memory import forget_peak, peak_megabytes
from benchmarks.optimisers import ScheduleFree, make_optimiser
from benchmarks.phases import mixed, phases
from benchmarks.rows import Row
from benchmarks.samples import load_splits
from benchmarks.sizes import SIZES, TINY_DARCY

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Darcy fields that all tests here use."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def train(cache):
    def run(model, out, *words, dataset="darcy"):
        options = ["--quick", "--threads", "1", "--cache", cache, "--device", "cpu"]
        return main(["train", dataset, model, *options, "--out", str(out), *words])

    return run


def log_of(out, name="darcy-dinozaur-quick-seed0"):
    """Everything of a training that is no time."""
    rows = tables.read_csv(out / name / "log.csv")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


@pytest.mark.parametrize(("model", "epochs"), [("dinozaur_b", 13), ("tfno", 2)])
def test_killed_and_started_again_it_ends_with_the_same_bits(
    model, epochs, train, cache, tmp_path
):
    """In the second phase of a posterior; with the two sets of Schedule-Free."""
    name = f"darcy-{model}-quick-seed0"
    options = ["--quick", "--threads", "1", "--cache", cache, "--device", "cpu"]
    assert train(model, tmp_path / "whole", "--epochs", "24") == 0
    killed = tmp_path / "killed"
    log = killed / name / "log.csv"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks", "train", "darcy", model),
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
    assert train(model, killed, "--epochs", "24") == 0
    assert log_of(killed, name) == log_of(tmp_path / "whole", name)
    results = [records.read(out / "runs.csv") for out in (killed, tmp_path / "whole")]
    metrics = [[[r[m] for m in records.METRICS] for r in rows] for rows in results]
    assert metrics[0] == metrics[1]
    best = [out / name / "best.safetensors" for out in (killed, tmp_path / "whole")]
    assert best[0].read_bytes() == best[1].read_bytes()


@pytest.mark.parametrize(
    ("model", "tolerance"), [("dinozaur", 1e-5), ("tfno", 1e-5), ("dinozaur_b", 5e-3)]
)
def test_two_processes_train_like_one(model, tolerance, train, cache, tmp_path):
    """Of 10 samples in batches of 4 the last one is smaller.

    The noise of a Bayesian model is that of the first process, fitted to its share of
    each batch, which the loss depends on a little.
    """
    assert train(model, tmp_path / "one") == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run(
        [
            *(*launcher, "--master-port", "0", "--standalone"),
            *("-m", "benchmarks", "train", "darcy", model, "--quick"),
            *("--threads", "1", "--cache", cache, "--device", "cpu"),
            *("--out", str(tmp_path / "two")),
        ],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name = f"darcy-{model}-quick-seed0"
    logs = [log_of(tmp_path / out, name) for out in ("one", "two")]
    for one, two in zip(*logs, strict=True):
        for column in one:
            expected = pytest.approx(float(one[column]), rel=tolerance)
            assert float(two[column]) == expected
    assert records.read(tmp_path / "two" / "runs.csv")[0]["processes"] == "2"


def test_batch_of_one_cannot_be_shared(tmp_path):
    row = Row("car", "dinozaur", "quick")
    fabric = SimpleNamespace(device="cpu", world_size=2)
    with pytest.raises(ValueError, match="batch of 1 cannot be shared by 2 processes"):
        Fitting(fabric, row, load_splits(row, tmp_path), 0, tmp_path)


def test_uncertain_rows_have_results_for_every_noise(train, tmp_path, capsys):
    for model in ("dinozaur_d", "dinozaur_l", "dinozaur"):
        assert train(model, tmp_path) == 0
    rows = records.read(tmp_path / "runs.csv")
    found = [(row["model"], row["noise"]) for row in rows]
    assert found == [
        ("dinozaur", "none"),
        *(("dinozaur_d", "fitted"), ("dinozaur_d", "fixed")),
        *(("dinozaur_l", noise) for noise in ("evidence", "fitted", "fixed")),
    ]
    by_key = dict(zip(found, rows, strict=True))
    plain, laplace = by_key["dinozaur", "none"], by_key["dinozaur_l", "fixed"]
    # Laplace takes the deterministic training, which is not repeated for it.
    assert float(laplace["relative_l2"]) == pytest.approx(
        float(plain["relative_l2"]), rel=1e-4
    )
    assert len(list(tmp_path.glob("darcy-*"))) == 2
    assert plain["nll"] == plain["noise_variance"] == ""
    for row in rows[1:]:
        assert all(row[name] for name in records.METRICS)
    fixed, fitted = (by_key["dinozaur_d", noise] for noise in ("fixed", "fitted"))
    assert float(fixed["noise_variance"]) == pytest.approx(0.0183156, rel=1e-4)
    assert float(fitted["nll"]) < float(fixed["nll"])
    assert fitted["draws"] == "3"
    assert plain["commit"]

    capsys.readouterr()
    assert train("dinozaur", tmp_path) == 0
    assert "--again replaces it" in capsys.readouterr().out
    before = (tmp_path / "darcy-dinozaur-quick-seed0" / "last.pt").stat().st_mtime_ns
    assert train("dinozaur", tmp_path, "--again") == 0
    after = (tmp_path / "darcy-dinozaur-quick-seed0" / "last.pt").stat().st_mtime_ns
    assert after > before
    again = records.read(tmp_path / "runs.csv")
    assert [row["relative_l2"] for row in again] == [row["relative_l2"] for row in rows]


def test_campaign_trains_what_is_missing(cache, tmp_path, capsys):
    words = ["campaign", "darcy", "--models", "fno", "tfno", "--seeds", "0", "1"]
    words += ["--quick", "--threads", "1", "--cache", cache, "--out", str(tmp_path)]
    words += ["--epochs", "1", "--device", "cpu"]
    assert main([*words, "--dry-run"]) == 0
    assert "4 of 4 trainings are left" in capsys.readouterr().out
    # Another process is at one of them.
    with locked(tmp_path / "darcy-fno-quick-seed0") as free:
        assert free
        assert main(words) == 0
    shown = capsys.readouterr().out
    assert "darcy fno 0: another process is at it" in shown
    keys = [records.key_of(row)[1:4:2] for row in records.read(tmp_path / "runs.csv")]
    assert keys == [("fno", "1"), ("tfno", "0"), ("tfno", "1")]
    assert main(words) == 0
    assert "1 of 4 trainings are left" in capsys.readouterr().out
    assert len(records.read(tmp_path / "runs.csv")) == 4


def test_waiting_for_the_data_is_said(tmp_path, capsys):
    row = Row("darcy", "fno", "quick")
    with ThreadPoolExecutor(1) as pool:
        with locked(tmp_path / "darcy"):
            loading = pool.submit(load_splits, row, tmp_path)
            time.sleep(0.5)
            assert not loading.done()
        assert len(loading.result(60).train) == row.size.n_train
    assert "darcy: waiting for another process" in capsys.readouterr().err


def test_campaigns_are_not_for_torchrun(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["campaign", "--preset", "cpu"]) == 2
    assert "start it several times" in capsys.readouterr().err


def test_peak_is_of_one_training():
    cpu = torch.device("cpu")
    forget_peak(cpu)
    before = peak_megabytes(cpu)
    ones = torch.ones(50_000_000)
    if Path("/proc/self/clear_refs").exists():
        assert peak_megabytes(cpu) > before + 150
    del ones
    forget_peak(cpu)
    if Path("/proc/self/clear_refs").exists():
        assert peak_megabytes(cpu) < before + 150


def test_mixed_precision(train, tmp_path):
    assert train("dinozaur", tmp_path, "--precision", "bf16-mixed") == 0
    (row,) = records.read(tmp_path / "runs.csv")
    assert row["precision"] == "bf16-mixed"
    assert 0 < float(row["relative_l2"]) < 1
    with pytest.raises(ValueError, match="precision bf16-mixed instead of 32-true"):
        check_same(
            *(Path("last.pt"), {"precision": "bf16-mixed"}, {"precision": "32-true"})
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "--epochs (=0) must be at least 1"),
        (["--device", "abacus"], "--device (=abacus) is unknown"),
        (["--device", "cuda"], "torch finds no GPU here"),
    ],
)
def test_user_errors(words, message, tmp_path, capsys):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert main(["train", "darcy", "fno", *words, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--quick"], ["--epochs", "3"], ["--files", "x"]])
def test_other_results_need_a_place(words, capsys):
    assert main(["train", "darcy", "fno", *words]) == 2
    assert f"{words[0]} has no place among the results" in capsys.readouterr().err


def test_missing_file(train, tmp_path, capsys):
    assert train("fno", tmp_path, "--files", str(tmp_path / "none.mat")) == 2
    assert "none.mat" in capsys.readouterr().err


@pytest.mark.parametrize("dataset", ["car", "navier_stokes"])
def test_other_datasets(dataset, train, tmp_path):
    for model in ("dinozaur_b", "dinozaur_l"):
        assert train(model, tmp_path, "--epochs", "2", dataset=dataset) == 0
    rows = records.read(tmp_path / "runs.csv")
    assert len(rows) == 5
    for row in rows:
        assert all(float(row[name]) == float(row[name]) for name in records.METRICS)
        assert row["data"].startswith(dataset)


def test_another_training_in_the_same_place(train, tmp_path, capsys):
    assert train("fno", tmp_path, "--epochs", "1") == 0
    assert train("fno", tmp_path, "--epochs", "2", "--again") == 2
    assert "of a training with epochs 1 instead of 2" in capsys.readouterr().err
    last = tmp_path / "darcy-fno-quick-seed0" / "last.pt"
    last.write_bytes(last.read_bytes()[:100])
    assert train("fno", tmp_path, "--epochs", "1", "--again") == 2
    assert "last.pt cannot be read" in capsys.readouterr().err


def test_full_disk_keeps_the_last_state(tmp_path):
    """The size of files is limited instead, which fails in the same place."""
    model = nn.Linear(2000, 100)
    path, weights = tmp_path / "last.pt", tmp_path / "best.safetensors"
    checkpoints.save_state(path, {"log": [1.5], "model": model.state_dict()})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        with pytest.raises(ValueError, match=r"last.pt could not be written"):
            checkpoints.save_state(path, {"model": model.state_dict()})
        with pytest.raises(ValueError, match=r"safetensors could not be written"):
            checkpoints.save_weights(weights, model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]
    assert checkpoints.load_state(path)["log"] == [1.5]


def test_weights_go_to_the_same_model_only(tmp_path):
    model, path = nn.Linear(2, 2), tmp_path / "w.safetensors"
    checkpoints.save_weights(path, model)
    other = nn.Linear(2, 2)
    checkpoints.load_weights(path, other)
    assert torch.equal(other.weight, model.weight)
    with pytest.raises(ValueError, match="of another model: 'bias'"):
        checkpoints.load_weights(path, nn.Linear(2, 2, bias=False))
    path.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="cannot be read"):
        checkpoints.load_weights(path, model)


def a_record(seed=0, **values):
    empty = dict.fromkeys(records.COLUMNS, "")
    key = {"dataset": "darcy", "model": "fno", "preset": "cpu", "noise": "none"}
    return {**empty, **key, "seed": str(seed), **values}


ADD = """
import json, sys, time
from pathlib import Path
from types import SimpleNamespace
from benchmarks import records
record, first = json.loads(sys.argv[2]), int(sys.argv[3])
folder = Path(sys.argv[1]).parent
(folder / f"ready-{first}").touch()
while len(list(folder.glob("ready-*"))) < 2:  # both begin at the same moment
    time.sleep(0.001)
for seed in range(first, first + 20):
    records.add(Path(sys.argv[1]), [{**record, "seed": str(seed)}])
"""


def test_processes_that_finish_at_once_lose_nothing(run_python, tmp_path):
    path = tmp_path / "runs.csv"
    with ThreadPoolExecutor() as pool:
        arguments = [(ADD, path, json.dumps(a_record()), first) for first in (0, 20)]
        list(pool.map(lambda words: run_python(*words), arguments))
    assert [int(row["seed"]) for row in records.read(path)] == list(range(40))


def test_results_are_replaced_only_when_told(tmp_path):
    path = tmp_path / "runs.csv"
    records.add(path, [a_record(relative_l2="0.1")])
    with pytest.raises(ValueError, match="already; give --again"):
        records.add(path, [a_record(relative_l2="0.2")])
    assert records.read(path)[0]["relative_l2"] == "0.1"
    records.add(path, [a_record(relative_l2="0.2")], again=True)
    assert [row["relative_l2"] for row in records.read(path)] == ["0.2"]


def test_results_of_another_version_are_left_alone(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("dataset,model,colour\ndarcy,fno,red\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another version: its columns differ in"):
        records.add(path, [a_record()])
    assert path.read_bytes() == before
    path.write_text(",".join(records.COLUMNS) + "\ndarcy,fno\n")
    with pytest.raises(ValueError, match="wrong number of values"):
        records.read(path)
    with pytest.raises(ValueError, match="other columns"):
        records.add(path, [{"dataset": "darcy"}])


def test_schedule_free_sees_complex_weights_as_pairs():
    torch.manual_seed(0)
    start = torch.randn(4, dtype=torch.cfloat)
    goal = torch.randn(4, dtype=torch.cfloat)
    both = nn.Parameter(start.clone())
    pairs = nn.Parameter(torch.view_as_real(start).clone())
    options = {"lr": 0.1, "weight_decay": 1e-2}
    optimisers = [ScheduleFree([{"params": [p], **options}]) for p in (both, pairs)]
    for _ in range(5):
        for optimiser, parameter in zip(optimisers, (both, pairs), strict=True):
            optimiser.train()
            optimiser.zero_grad()
            value = parameter
            if not value.is_complex():
                value = torch.view_as_complex(value)
            (value - goal).abs().square().sum().backward()
            optimiser.step()
            optimiser.eval()
    assert torch.equal(torch.view_as_real(both.detach()), pairs.detach())
    assert (both - goal).abs().sum() < (start - goal).abs().sum()
    optimisers[0].zero_grad()
    assert both.grad is None


def test_phases_of_a_warm_start():
    row = Row("darcy", "dinozaur_b", "cpu")
    first, second = phases(row, 24)
    assert (first.stop, second.first, second.stop) == (18, 18, 24)
    assert second.variational
    assert not first.variational
    (only,) = phases(Row("car", "dinozaur_b"), 200)
    assert only.variational
    assert len({mixed(0, "order", 1), mixed(1, "order", 0), mixed(0, "draws", 1)}) == 3


def test_schedule_free_has_a_rate_for_each_group():
    slow, fast = (nn.Parameter(torch.ones(3)) for _ in range(2))
    groups = [
        {"params": [p], "lr": lr, "weight_decay": 0.0}
        for p, lr in ((slow, 1e-3), (fast, 1e-2))
    ]
    optimiser, schedule = make_optimiser(groups, "schedule-free", 10)
    assert schedule is None
    optimiser.train()
    (slow.sum() + fast.sum()).backward()
    optimiser.step()
    moved = [(1 - p.detach()).mean().item() for p in (slow, fast)]
    assert moved[1] == pytest.approx(10 * moved[0], rel=1e-3)


@pytest.mark.parametrize("device", ["mps", "meta"])
def test_devices_that_cannot_be_used(device, tmp_path, capsys):
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("there is one here")
    words = ["train", "darcy", "fno", "--quick", "--out", str(tmp_path)]
    assert main([*words, "--device", device]) == 2
    assert f"--device (={device}) cannot be used here" in capsys.readouterr().err


def test_number_of_a_processor_is_ignored(train, tmp_path):
    assert train("fno", tmp_path, "--epochs", "1", "--device", "cpu:0") == 0


def test_folder_that_cannot_be_made(train, tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    assert train("fno", tmp_path / "file" / "runs") == 2
    shown = capsys.readouterr().err
    assert "python -m benchmarks train" in shown
    assert str(tmp_path / "file") in shown


def test_full_disk_keeps_the_results(tmp_path, monkeypatch):
    row = record("darcy", "fno", 0)
    path = tmp_path / "runs.csv"
    records.add(path, [row])
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(csv.DictWriter, "writerows", full)
    with pytest.raises(ValueError, match=r"could not be written: .*No space left"):
        records.add(path, [{**row, "seed": "1"}])
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if "lock" not in p.name] == ["runs.csv"]
    records.add(path, [{**row, "seed": "1"}])
    assert len(records.read(path)) == 2


@pytest.mark.parametrize("command", [["train", "darcy", "fno"], ["campaign", "darcy"]])
def test_results_of_another_version_are_seen_before_training(
    command, tmp_path, capsys, cache
):
    (tmp_path / "runs.csv").write_text("dataset,model\ndarcy,fno\n")
    words = [*command, "--quick", "--device", "cpu", "--cache", cache]
    assert main([*words, "--out", str(tmp_path)]) == 2
    assert "was written by another version" in capsys.readouterr().err
    assert (tmp_path / "runs.csv").read_text() == "dataset,model\ndarcy,fno\n"
    assert not (tmp_path / "darcy-fno-quick-seed0").exists()


def test_row_that_another_process_trains(train, tmp_path, capsys):
    with locked(tmp_path / "darcy-fno-quick-seed0"):
        assert train("fno", tmp_path) == 2
    assert "is being trained by another process" in capsys.readouterr().err


def test_training_that_diverges_says_so(train, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "benchmarks.fitting.loss_of",
        lambda *_: lambda output, target: output.sum() * float("nan"),
    )
    assert train("fno", tmp_path) == 2
    shown = capsys.readouterr().err
    assert "is nan in epoch 1: the training diverged" in shown
    assert not (tmp_path / "runs.csv").exists()


def test_what_does_not_matter_to_a_training_may_change(monkeypatch):
    before = {m: size_of(Row("darcy", m, "quick")) for m in ("fno_l", "dinozaur_b")}
    size = replace(TINY_DARCY, rates={"tfno": 1.0}, warm_epochs=2)
    monkeypatch.setitem(SIZES, ("darcy", "quick"), size)
    assert size_of(Row("darcy", "fno_l", "quick")) == before["fno_l"]
    after = size_of(Row("darcy", "dinozaur_b", "quick"))
    changed = {name for name in after if after[name] != before["dinozaur_b"][name]}
    assert changed == {"size.warm_epochs"}
