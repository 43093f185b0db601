"""Options that travel in a class.

neuraloperator's builders take a ``conv_module`` *class* and call it with arguments of
their own. Options of ours must therefore travel in the class: it has to be a real one
(builders use ``issubclass``) and it has to pickle (checkpoints store it).
"""

from __future__ import annotations

import copyreg
import difflib
import functools
import inspect
from typing import Any, TypeVar, cast

import numpy as np
from torch import Tensor

C = TypeVar("C", bound="ConfigurableClass")


class ConfigurableClass(type):
    """Metaclass that gives a class `configure`."""

    _base: ConfigurableClass
    _options: dict[str, Any]

    def configure(cls: C, **options: Any) -> C:
        """Return a class with these options as its defaults.

        Equal options give the same class, which is a subclass of this one, has a
        readable name, pickles and copies.

        Parameters
        ----------
        **options
            Keyword arguments of the constructor.

        Examples
        --------
        >>> from dinozaur_no import DiffusionSpectralConv
        >>> DiffusionSpectralConv.configure(gradient_features=False)
        <class 'dinozaur_no.DiffusionSpectralConv(gradient_features=False)'>
        """
        known = _keyword_arguments(cls)
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=2)
                hint = f"did you mean {' or '.join(close)}? " if close else ""
                raise TypeError(
                    f"{cls.__name__}.configure got an unknown option {name!r}; {hint}"
                    f"the options are {', '.join(sorted(known))}"
                )
        base = cls.__dict__.get("_base", cls)
        merged = {**cls.__dict__.get("_options", {}), **options}
        if not merged:
            return cls
        frozen = tuple((name, _frozen(merged[name])) for name in sorted(merged))
        return cast(C, _configured(base, frozen, _types(frozen)))


@functools.cache
def _configured(
    base: ConfigurableClass, options: tuple[tuple[str, Any], ...], types: Any
) -> ConfigurableClass:
    """Make a class. The types are for the cache, to which 4, 4.0 and True are equal."""
    defaults = dict(options)
    name = f"{base.__name__}({', '.join(f'{k}={v!r}' for k, v in options)})"

    construct: Any = base.__init__  # type: ignore[misc]

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **{**defaults, **kwargs})

    namespace = {
        "__init__": __init__,
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__qualname__": name,
        "_base": base,
        "_options": defaults,
    }
    return ConfigurableClass(name, (base,), namespace)


def _keyword_arguments(cls: type) -> set[str]:
    """Return the names of the options along the chain of constructors."""
    names: set[str] = set()
    for parent in cls.__mro__:
        if "__init__" not in parent.__dict__:
            continue
        constructor = inspect.signature(parent.__dict__["__init__"])
        parameters = list(constructor.parameters.values())[1:]
        names |= {p.name for p in parameters if p.default is not p.empty}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names


def _frozen(value: Any) -> Any:
    """Return the same value in hashable form; arrays become numbers."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(v) for v in value)
    try:
        hash(value)
    except TypeError as error:
        raise TypeError(
            f"an option given to configure must be hashable, got {value!r}; "
            "use numbers, strings, booleans or tuples of them"
        ) from error
    return value


def _types(value: Any) -> Any:
    """Return the type of a value, or those of all values in a tuple."""
    return tuple(map(_types, value)) if isinstance(value, tuple) else type(value)


def _reduce(cls: ConfigurableClass) -> Any:
    if "_options" in cls.__dict__:
        # Names the base class alone, no function of this file.
        return functools.partial(cls._base.configure, **cls._options), ()
    return cls.__qualname__


copyreg.pickle(ConfigurableClass, _reduce)
