"""Models in a folder: weights without code, and a text that says how to build them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from neuralop.layers.base_spectral_conv import BaseSpectralConv
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models.base_model import BaseModel
from torch import Tensor, nn

from .._torch import write_atomically
from ..layers.conditional import Conditioned
from ..uncertainty import CorrelatedNoise, Deterministic, VariationalOperator
from ._json import decoded, decoded_model, encoded, encoded_model
from ._tensors import bytes_of, tensors_of

_CONFIG, _FORMAT = "config.json", 3
_WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
#: Modules around a model, and the arguments that are attributes of theirs.
_WRAPPERS: Mapping[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "Conditioned": (Conditioned, ()),
    "Deterministic": (Deterministic, ()),
    "VariationalOperator": (VariationalOperator, ("learn_noise",)),
}


def save_pretrained(model: nn.Module, folder: str | os.PathLike[str]) -> Path:
    """Save a model such that `load_pretrained` builds it again, without code.

    The folder gets a file of weights and ``config.json``, which names classes and holds
    the arguments of the model. Whatever was saved there before stays valid until both
    are complete.

    Parameters
    ----------
    model : nn.Module
        A model that neuraloperator registers, such as `DINOZAUR` or `FNO` with a
        ``conv_module`` of this package, also with options by ``configure``; or a
        `VariationalOperator`, `Deterministic` or `Conditioned` around one. Its
        arguments must be numbers, strings, layers of this package, or nonlinearities
        of ``torch.nn.functional``.
    folder : path
        Where to save. It is created if it does not exist.

    Returns
    -------
    Path
        The folder. Other files in it stay; a ``config.json`` that is not of this
        function is an error.

    Examples
    --------
    >>> import tempfile, torch
    >>> from dinozaur_no import DINOZAUR, load_pretrained, save_pretrained
    >>> model = DINOZAUR((8, 8), 1, 1, 16, drift=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_pretrained(model, folder)
    ...     again = load_pretrained(folder)
    >>> x = torch.randn(1, 1, 12, 12)
    >>> torch.equal(again(x), model.eval()(x))
    True
    """
    folder, wrappers, inner = Path(folder), [], model
    while isinstance(inner, (Conditioned, Deterministic, VariationalOperator)):
        if type(inner).__name__ not in _WRAPPERS:
            break  # a subclass
        wrappers.append(_encoded_wrapper(inner))
        inner = inner.model
    if not isinstance(inner, BaseModel):
        raise TypeError(
            f"a {type(inner).__name__} cannot be saved; save a model of neuraloperator "
            f"or of this package, alone or inside of {', '.join(_WRAPPERS)}. Other "
            "operators with error bars have save_checkpoint"
        )
    config: dict[str, Any] = {
        "format": _FORMAT,
        "versions": {name: version(name) for name in ("dinozaur-no", "neuraloperator")},
        "model": encoded_model(inner),
        "wrappers": wrappers,
        "modes": {name: _modes(block.n_modes) for name, block in _blocks(inner)},
        "layers": {name: _settings(layer) for name, layer in _layers(inner).items()},
    }
    _check_own(folder / _CONFIG)
    state = model.state_dict()
    tensors = {name: v for name, v in state.items() if isinstance(v, Tensor)}
    weights = bytes_of(tensors)
    config["weights"] = _name_of(weights)
    text = json.dumps(config, indent=1, allow_nan=False).encode()
    write_atomically(folder / config["weights"], lambda file: file.write(weights))
    write_atomically(folder / _CONFIG, lambda file: file.write(text))
    for old in folder.iterdir():
        if _WEIGHTS.fullmatch(old.name) and old.name != config["weights"]:
            old.unlink(missing_ok=True)
    return folder


def load_pretrained(
    folder: str | os.PathLike[str], *, map_location: Any = None
) -> nn.Module:
    """Build a model that `save_pretrained` saved, with its weights.

    No code of the folder is run: classes are looked up by their names among those of
    this package and those that neuraloperator has registered, and weights are plain
    numbers. Graph layers are neuraloperator's; `accelerate_gno` makes them fast again.

    Parameters
    ----------
    folder : path
        The folder.
    map_location : torch.device or str, optional
        Device of the model, by default the CPU.

    Returns
    -------
    nn.Module
        The model, in evaluation mode.
    """
    folder = Path(folder)
    config = _read_config(folder / _CONFIG)
    try:
        torch.empty(0, device=map_location)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(
            f"map_location (={map_location!r}) must be a device of this machine, such "
            f"as 'cpu' ({error})"
        ) from error
    weights = _read_weights(folder, config["weights"], map_location)
    try:
        model: nn.Module = decoded_model(config["model"])
        inner = model
        for entry in reversed(config["wrappers"]):
            model = _decoded_wrapper(entry, model)
        for name, modes in config.get("modes", {}).items():
            inner.get_submodule(name).n_modes = modes
        for name, values in config["layers"].items():
            layer = _layers(inner)[name]
            layer.n_modes = values["n_modes"]
            if "extent" in values:
                layer.extent = tuple(values["extent"])
        model.load_state_dict(weights, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ValueError(
            f"{folder / _CONFIG} does not describe a model that can be built here: "
            f"{error}. It was saved with {config.get('versions')}; install these "
            "versions, or save the model again"
        ) from error
    return model.eval()


def _layers(model: nn.Module) -> dict[str, Any]:
    """Return the spectral convolutions of a model, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, BaseSpectralConv) and hasattr(module, "n_modes")
    }


def _blocks(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield models and blocks that hand their modes on to layers, by name."""
    for name, module in model.named_modules():
        shared = isinstance(getattr(type(module), "n_modes", None), property)
        if shared and not isinstance(module, BaseSpectralConv):
            yield name, module


def _modes(given: Any) -> int | list[int]:
    return [int(m) for m in given] if isinstance(given, Iterable) else int(given)


def _settings(layer: Any) -> dict[str, list[int] | list[float]]:
    """Return what can be set after a layer was built."""
    modes = [int(m) for m in layer.n_modes]
    if isinstance(layer, SpectralConv) and not layer.complex_data:
        modes[-1] = max(1, 2 * (modes[-1] - 1))  # upstream shows m // 2 + 1 for m
    if not hasattr(layer, "extent"):
        return {"n_modes": modes}
    return {"n_modes": modes, "extent": [float(length) for length in layer.extent]}


def _encoded_wrapper(module: nn.Module) -> dict[str, Any]:
    name = type(module).__name__
    given = {key: encoded(key, getattr(module, key)) for key in _WRAPPERS[name][1]}
    noise = getattr(module, "noise", None)
    if isinstance(noise, CorrelatedNoise):
        if noise.amplitude is not None:
            raise TypeError(
                "noise with an amplitude cannot be saved without code; use "
                "save_checkpoint of the operator"
            )
        options = {"where": noise.where, "n_functions": noise.n_functions}
        given["noise"] = {k: encoded(f"noise.{k}", v) for k, v in options.items()}
    return {"class": name, "arguments": given}


def _decoded_wrapper(entry: Mapping[str, Any], model: nn.Module) -> nn.Module:
    if entry["class"] not in _WRAPPERS:
        raise ValueError(f"unknown wrapper (={entry['class']!r})")
    given = {k: decoded(v) for k, v in entry["arguments"].items() if k != "noise"}
    if "noise" in entry["arguments"]:
        given["noise"] = CorrelatedNoise(**entry["arguments"]["noise"])
    return _WRAPPERS[entry["class"]][0](model, **given)


def _check_own(path: Path) -> None:
    """Raise an error if there is a file that `save_pretrained` did not write."""
    if not path.exists():
        return
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        config = None
    if not (isinstance(config, dict) and {"format", "weights"} <= config.keys()):
        raise ValueError(
            f"{path} is there and was not written by save_pretrained; save to another "
            "folder, or move the file away"
        )


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; save_pretrained(model, {str(path.parent)!r}) "
            "writes it"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} is not JSON ({error}); save the model again"
        ) from error
    known = {"format", "versions", "model", "wrappers", "layers", "weights"}
    if not isinstance(config, dict) or config.get("format") != _FORMAT:
        raise ValueError(
            f"{path} is not of format {_FORMAT}; load it with the version of "
            "dinozaur-no that wrote it"
        )
    if known - config.keys():
        raise ValueError(
            f"{path} has no {', '.join(sorted(known - config.keys()))}; save the model "
            "again"
        )
    return config


def _read_weights(folder: Path, name: Any, map_location: Any) -> dict[str, Tensor]:
    # A name from a file must not lead out of the folder.
    if not (isinstance(name, str) and _WEIGHTS.fullmatch(name)):
        raise ValueError(
            f"{folder / _CONFIG} names weights (={name!r}) that save_pretrained does "
            "not write; save the model again"
        )
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; copy the whole folder")
    content = path.read_bytes()
    try:
        if _name_of(content) != name:
            raise ValueError("its content is not what was saved")
        return tensors_of(content, map_location)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{path} is damaged ({error}); copy the folder again"
        ) from error


def _name_of(weights: bytes) -> str:
    return f"weights-{hashlib.sha256(weights).hexdigest()[:16]}.safetensors"
