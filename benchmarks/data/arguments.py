"""Checks and listing of arguments, for the generators and readers."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np


def at_least(least: int, **values: int) -> None:
    """Raise an error that names the first argument that is no integer >= ``least``."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} (={value!r}) must be an integer")
        if value < least:
            raise ValueError(f"{name} (={value}) must be at least {least}")


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """List the keyword-only arguments of a function, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
