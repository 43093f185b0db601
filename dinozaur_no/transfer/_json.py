"""Arguments of models as JSON: names of known layers and functions, never code."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import torch
from neuralop.layers.spectral_convolution import SpectralConv
from neuralop.models.base_model import BaseModel

from .. import layers

_LAYERS: Mapping[str, Any] = {
    **{n: getattr(layers, n) for n in layers.__all__ if n.endswith("Conv")},
    "SpectralConv": SpectralConv,
}
#: Functions of torch.nn.functional that serve as nonlinearities.
_FUNCTIONS = (
    *("celu", "elu", "gelu", "hardswish", "leaky_relu", "logsigmoid", "mish", "relu"),
    *("relu6", "selu", "sigmoid", "silu", "softplus", "softsign", "tanh", "tanhshrink"),
)


def encoded(name: str, value: Any) -> Any:
    """Return an argument in a form that JSON has, or raise an error that names it."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if hasattr(value, "tolist") and not isinstance(value, type):  # an array
        return encoded(name, value.tolist())
    if isinstance(value, list):
        return [encoded(name, v) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [encoded(name, v) for v in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encoded(f"{name}.{key}", v) for key, v in value.items()}}
    if isinstance(value, type):
        base = value.__dict__.get("_base", value)
        if base in _LAYERS.values():
            changed = value.__dict__.get("_options", {})
            given = {key: encoded(f"{name}.{key}", v) for key, v in changed.items()}
            return {"layer": base.__name__, "options": given}
    for function in _FUNCTIONS:
        if value is getattr(torch.nn.functional, function):
            return {"function": function}
    raise TypeError(
        f"{name} (={value!r}) cannot be saved without code; use numbers, strings, a "
        "layer of this package, or a nonlinearity of torch.nn.functional"
    )


def decoded(value: Any) -> Any:
    """Return the argument that `encoded` turned into this form."""
    if isinstance(value, list):
        return [decoded(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(decoded(v) for v in value["tuple"])
    if "dict" in value:
        return {key: decoded(v) for key, v in value["dict"].items()}
    if "layer" in value:
        layer = _known("layer", value["layer"], _LAYERS)
        changed = {key: decoded(v) for key, v in value["options"].items()}
        return layer.configure(**changed) if changed else layer
    if "function" in value:
        names = dict(zip(_FUNCTIONS, _FUNCTIONS))
        name = _known("function", value["function"], names)
        return getattr(torch.nn.functional, name)
    raise ValueError(f"unknown form of an argument (={value})")


def encoded_model(model: BaseModel) -> dict[str, Any]:
    """Return the class of a model and the arguments it was built with."""
    cls = type(model)
    if BaseModel._models.get(cls.__name__.lower()) is not cls:
        raise TypeError(
            f"{cls.__name__} is not registered in neuraloperator under its own name, "
            "so it could not be found again"
        )
    arguments = dict(model._init_kwargs)
    for own in ("_version", "_name"):
        arguments.pop(own, None)
    # Upstream adds defaults even to arguments that were given by their place.
    arguments.update(zip(_places(cls), arguments.pop("args", ())))
    given = {name: encoded(name, value) for name, value in arguments.items()}
    return {"class": cls.__name__, "arguments": given}


def _places(cls: type) -> list[str]:
    """Return the names of arguments by their place, also of upstream's aliases."""
    for parent in cls.__mro__:
        if "__init__" in parent.__dict__:
            parameters = inspect.signature(parent.__dict__["__init__"]).parameters
            if not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
                return list(parameters)[1:]
    return []


def decoded_model(entry: Mapping[str, Any]) -> Any:
    """Build the model of an entry that `encoded_model` made."""
    models = {cls.__name__: cls for cls in BaseModel._models.values()}
    cls = _known("model", entry["class"], models)
    arguments = {name: decoded(v) for name, v in entry["arguments"].items()}
    # Weights that are drawn here are replaced, so the caller's generator must not move.
    with torch.random.fork_rng(devices=[]):
        return cls(**arguments)


def _known(what: str, name: Any, names: Mapping[str, Any]) -> Any:
    if name not in names:
        raise ValueError(
            f"unknown {what} (={name!r}); there are {', '.join(sorted(names))}. If it "
            "is of another package, import that first"
        )
    return names[name]
