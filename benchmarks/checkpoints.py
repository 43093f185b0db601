"""States of a training on disk: complete or as before, and nothing but numbers."""

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from benchmarks.files import atomic_path


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers alone.

    Models of neuraloperator add the arguments they were built with, which are code.
    """
    state = model.state_dict()
    return {name: v.contiguous() for name, v in state.items() if isinstance(v, Tensor)}


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write tensors, numbers, strings, and lists and dicts of them."""
    with _explained(path), atomic_path(path) as temporary:
        torch.save(dict(state), temporary)


def load_state(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read what :func:`save_state` wrote. No code is run."""
    try:
        found = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); delete it to train anew"
        ) from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a state of a training; delete it")
    return found


def save_weights(path: Path, model: nn.Module) -> None:
    """Write parameters and buffers as safetensors."""
    with _explained(path), atomic_path(path) as temporary:
        save_file(weights_of(model), temporary)


def load_weights(path: Path, model: nn.Module) -> None:
    """Read what :func:`save_weights` wrote into a model of the same kind."""
    try:
        state = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error})") from error
    load_into(model, state)


def load_into(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Set parameters and buffers, all of them."""
    own = weights_of(model)
    if own.keys() != state.keys():
        other = sorted(own.keys() ^ state.keys())
        raise ValueError(
            f"these weights are of another model: {other[0]!r} and {len(other) - 1} "
            "more are in one of the two only"
        )
    model.load_state_dict(dict(state), strict=False)  # "_metadata" is not among them


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Inside, a write that fails says which file and that nothing is lost."""
    try:
        yield
    # torch and safetensors report a full disk by errors of their own.
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"{path} could not be written: {error}. What was there before is kept; "
            "make room and start again to go on from it"
        ) from error
