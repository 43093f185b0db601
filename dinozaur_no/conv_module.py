"""What every ``conv_module`` of this package needs: options, checks, cached tables.

neuraloperator's builders take a ``conv_module`` *class* and call it with arguments of
their own. Options of ours must therefore travel in the class: it has to be a real one
(builders use ``issubclass``) and it has to pickle (checkpoints store it).
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import math
import operator
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, TypeVar, cast

import torch
from neuralop.layers.resample import resample
from torch import Tensor
from torch.nn import Parameter

from .basis import Method, RealBasis

C = TypeVar("C", bound="ConfigurableClass")
T = TypeVar("T")


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
        <class 'dinozaur_no.diffusion.DiffusionSpectralConv(gradient_features=False)'>
        """
        known = _keyword_arguments(cls)
        for name in options:
            if name not in known:
                raise TypeError(
                    f"{cls.__name__}.configure got an unknown option {name!r}; "
                    f"the options are {', '.join(sorted(known))}"
                )
        base = cls.__dict__.get("_base", cls)
        merged = {**cls.__dict__.get("_options", {}), **options}
        if not merged:
            return cls
        frozen = tuple((name, _frozen(merged[name])) for name in sorted(merged))
        return cast(C, _configured(base, frozen))


@functools.cache
def _configured(
    base: ConfigurableClass, options: tuple[tuple[str, Any], ...]
) -> ConfigurableClass:
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
    """Names of the options along the chain of constructors."""
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
    """The same value in hashable form."""
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


def _restore(base: ConfigurableClass, options: dict[str, Any]) -> ConfigurableClass:
    return base.configure(**options)


def _reduce(cls: ConfigurableClass) -> Any:
    if "_options" in cls.__dict__:
        return _restore, (cls._base, cls._options)
    return cls.__qualname__


copyreg.pickle(ConfigurableClass, _reduce)


class BasisCache:
    """The bases that a layer used last, per grids, device and dtype.

    It is not part of a layer's state: copies and pickles of a layer start empty.
    """

    def __init__(self, method: Method = "auto", capacity: int = 8) -> None:
        self.method = one_of("axis_method", method, ("auto", "dense", "fft"))
        self.capacity = capacity
        self._bases: OrderedDict[tuple[Any, ...], RealBasis] = OrderedDict()

    def __len__(self) -> int:
        return len(self._bases)

    def __reduce__(self) -> tuple[Any, ...]:
        return BasisCache, (self.method, self.capacity)

    def get(
        self,
        n_modes: Sequence[int],
        n_in: Sequence[int],
        n_out: Sequence[int],
        extent: Sequence[float],
        like: Tensor,
    ) -> RealBasis:
        """The basis for these grids, with tables like ``like``."""
        # A compiler shall take grids as fixed and compile anew for another one.
        n_in, n_out = (
            tuple(map(operator.index, n_in)),
            tuple(map(operator.index, n_out)),
        )
        grids = (tuple(n_modes), n_in, n_out, tuple(extent))
        # A tracer's tables belong to its graph and must not outlive it.
        if torch.compiler.is_compiling() or type(like) not in (Tensor, Parameter):
            method = "dense" if self.method == "auto" else self.method
            return RealBasis(*grids, method, like.device, like.dtype)
        if like.numel() == 0:  # which an FFT refuses
            return RealBasis(*grids, "dense", like.device, like.dtype)
        key = (*grids, like.device, like.dtype)
        basis = self._bases.pop(key, None)
        if basis is None:
            # Tables made in inference mode could not be used in training later.
            with torch.inference_mode(False):
                basis = RealBasis(*grids, self.method, like.device, like.dtype)
        self._bases[key] = basis
        while len(self._bases) > self.capacity:
            self._bases.popitem(last=False)
        return basis


def one_of(name: str, value: T, choices: Sequence[T]) -> T:
    """The value, or an error that lists what it may be."""
    if value not in choices:
        raise ValueError(
            f"{name} (={value!r}) must be one of {', '.join(map(repr, choices))}"
        )
    return value


def positive_int(name: str, value: Any) -> int:
    """The value as an int of at least 1, or an error that names it."""
    number = _as_int(name, value)
    if number < 1:
        raise ValueError(f"{name} (={value}) must be at least 1")
    return number


def _as_int(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} (={value!r}) must be an integer") from error


def modes_per_axis(name: str, value: Any, order: int) -> tuple[int, ...]:
    """One positive int per axis; a single one will do for a single axis."""
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    if len(values) != order or not values:
        order = max(order, 1)
        raise ValueError(f"{name} (={value}) must have {order} entries, one per axis")
    return tuple(positive_int(name, v) for v in values)


def modes_within(
    value: Any, order: int, limit: Sequence[int] | None
) -> tuple[int, ...]:
    """``n_modes`` as given, checked against ``max_n_modes``."""
    modes = modes_per_axis("n_modes", value, order)
    if limit is not None and any(m > most for m, most in zip(modes, limit)):
        raise ValueError(
            f"n_modes (={list(modes)}) exceeds max_n_modes (={list(limit)})"
        )
    return modes


def number_per_axis(name: str, value: Any, order: int) -> tuple[float, ...]:
    """One positive, finite number per axis; a single one stands for all."""
    if isinstance(value, Tensor):
        value = value.tolist()
    values = tuple(value) if isinstance(value, Iterable) else (value,) * order
    if len(values) != order:
        raise ValueError(f"{name} (={value}) must be one number or {order}")
    if not all(isinstance(v, Real) and 0 < float(v) < math.inf for v in values):
        raise ValueError(f"{name} (={value}) must be positive and finite")
    return tuple(float(v) for v in values)


def check_input(
    x: Tensor, in_channels: int, n_modes: Sequence[int], complex_data: bool
) -> None:
    """Raise an error that says what is wrong with the input of a layer."""
    if not isinstance(x, Tensor):
        raise TypeError(f"input must be a torch.Tensor, got {type(x).__name__}")
    if x.ndim != len(n_modes) + 2 or x.shape[1] != in_channels:
        axes = ", ".join(f"n{j + 1}" for j in range(len(n_modes)))
        raise ValueError(
            f"input has shape {tuple(x.shape)}, expected (batch, {in_channels}, "
            f"{axes}): in_channels (={in_channels}) and one axis per entry of n_modes "
            f"(={list(n_modes)})"
        )
    if any(n == 0 for n in x.shape[2:]):
        raise ValueError(f"input of shape {tuple(x.shape)} has an axis of length 0")
    if x.is_complex() and not complex_data:
        raise TypeError(
            f"input is complex ({x.dtype}); build the layer with complex_data=True"
        )
    if not (x.is_floating_point() or x.is_complex()):
        raise TypeError(f"input has dtype {x.dtype}; convert it with x.float()")


def output_grid(
    grid: Sequence[int],
    output_shape: Sequence[int] | None,
    scaling: Sequence[float] | None,
) -> tuple[int, ...]:
    """Points of the output grid: asked for, scaled, or those of the input."""
    if output_shape is None:
        if scaling is None:
            return tuple(grid)
        output_shape = tuple(round(n * r) for n, r in zip(grid, scaling))
    sizes = tuple(output_shape) if isinstance(output_shape, Iterable) else ()
    if len(sizes) != len(grid) or any(n != round(n) or n < 1 for n in sizes):
        raise ValueError(
            f"output_shape (={output_shape}) must be {len(grid)} positive numbers of "
            f"points, one per axis of the input grid (={tuple(grid)})"
        )
    return tuple(round(n) for n in sizes)


def resampled(x: Tensor, n_out: tuple[int, ...]) -> Tensor:
    """A skip connection on the output grid, by upstream's interpolation."""
    if tuple(x.shape[2:]) == n_out:
        return x
    if x.is_complex():
        return torch.complex(resampled(x.real, n_out), resampled(x.imag, n_out))
    y: Tensor = resample(x, 1.0, list(range(2, x.ndim)), output_shape=n_out)
    return y.to(x.dtype)
