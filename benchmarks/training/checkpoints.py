"""States of a run on disk, written completely or not at all, without code."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.files import atomic_path


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers alone.

    Models of neuraloperator add their arguments to the state, which include classes.
    """
    state = model.state_dict()
    return {name: v.contiguous() for name, v in state.items() if isinstance(v, Tensor)}


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write tensors, numbers, strings, and lists and dicts of them."""
    try:
        with atomic_path(path) as temporary:
            torch.save(dict(state), temporary)
    except (OSError, RuntimeError) as error:  # torch's own error for a full disk
        raise ValueError(
            f"{path} could not be written: {error}. What was there before is kept; "
            "make room and run the command again to resume"
        ) from error


def load_state(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read what :func:`save_state` wrote. No code is run."""
    try:
        found = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); delete it to train from the beginning"
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not the state of a run; delete it")
    return found


def load_into(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Set all parameters and buffers of a model."""
    own = weights_of(model)
    if own.keys() != state.keys():
        other = sorted(own.keys() ^ state.keys())
        raise ValueError(
            f"these weights are of another model: {other[0]!r} and {len(other) - 1} "
            "more are in one of the two only"
        )
    model.load_state_dict(dict(state), strict=False)  # the state has no "_metadata"


def check_same(path: Path, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise an error if a checkpoint belongs to a run with other settings."""
    for name in wanted:
        if found.get(name) != wanted[name]:
            raise ValueError(
                f"{path} is of a run with {name} {found.get(name)} instead of "
                f"{wanted[name]}; delete it to train from the beginning, or choose "
                "another --out"
            )
