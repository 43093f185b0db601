"""Checks and listing of arguments, for the generators and readers."""

import inspect
from collections.abc import Callable
from typing import Any


def at_least(least: int, **values: int) -> None:
    """Raise an error that names the first argument below ``least``."""
    for name, value in values.items():
        if value < least:
            raise ValueError(f"{name} (={value}) must be at least {least}")


def keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """List the keyword-only arguments of a function, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
