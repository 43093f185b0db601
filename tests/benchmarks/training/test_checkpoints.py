"""Checkpoints: complete or as before, and of the same model only."""

import resource
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.training import checkpoints


def test_full_disk_keeps_the_last_state(tmp_path):
    """The size of files is limited instead, which fails in the same place."""
    model = nn.Linear(2000, 100)
    path = tmp_path / "last.pt"
    checkpoints.save_state(path, {"log": [1.5], "model": model.state_dict()})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        with pytest.raises(ValueError, match=r"last.pt could not be written"):
            checkpoints.save_state(path, {"model": model.state_dict()})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]
    assert checkpoints.load_state(path)["log"] == [1.5]


def test_weights_go_to_the_same_model_only(tmp_path):
    model, other, path = nn.Linear(2, 2), nn.Linear(2, 2), tmp_path / "last.pt"
    checkpoints.save_state(path, {"model": checkpoints.weights_of(model)})
    state = checkpoints.load_state(path)["model"]
    checkpoints.load_into(other, state)
    assert torch.equal(other.weight, model.weight)
    with pytest.raises(ValueError, match="of another model: 'bias'"):
        checkpoints.load_into(nn.Linear(2, 2, bias=False), state)


def test_files_that_are_no_checkpoints(tmp_path):
    path = tmp_path / "last.pt"
    path.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="cannot be read"):
        checkpoints.load_state(path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="is not the state of a run"):
        checkpoints.load_state(path)


def test_checkpoint_of_other_settings():
    other = {"precision": "bf16-mixed"}
    with pytest.raises(ValueError, match="precision bf16-mixed instead of 32-true"):
        checkpoints.check_same(Path("last.pt"), other, {"precision": "32-true"})
    checkpoints.check_same(Path("last.pt"), {**other, "seed": "1"}, {"seed": "1"})
