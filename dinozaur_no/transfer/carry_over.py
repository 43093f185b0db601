"""Weights of a trained model for a model of another dimension or number of modes.

No parameter of a diffusion layer depends on the grid or on the modes, and only
displacements have one number per axis. A model of two dimensions therefore has all
parameters of one of three dimensions, except for those that say what happens along the
new axis. `carry_over` sets these to zero. The new model then maps fields that are
constant along the new axis as the old one did.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._validation import one_of
from ..uncertainty import CorrelatedNoise
from ._inputs import Input, named_inputs
from ._layers import SPECIAL, Entry, carried, check_layers, paired_layers


@dataclass(frozen=True)
class CarryOverReport:
    """Parameters and buffers of the target of `carry_over`, by what became of them.

    Printing it shows a summary.

    Attributes
    ----------
    copied : list of str
        Names of tensors that are those of the source.
    extended : dict
        Names of tensors that hold those of the source and more, with the reason.
    new : dict
        Names of tensors without a counterpart, which stayed as they were, with the
        reason.
    left_out : dict
        Names of tensors of the source that the target has no place for, with the
        reason.
    """

    copied: list[str] = field(default_factory=list)
    extended: dict[str, str] = field(default_factory=dict)
    new: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"copied: {_counted(self.copied)}"]
        for title in ("extended", "new", "left_out"):
            entries = getattr(self, title)
            lines += [f"{title.replace('_', ' ')}: {_counted(entries)}"]
            lines += [f"  {name}: {reason}" for name, reason in entries.items()]
        return "\n".join(lines)


def _counted(names: Sized) -> str:
    return f"{len(names)} tensor{'s' * (len(names) != 1)}"


def carry_over(
    source: nn.Module,
    target: nn.Module,
    *,
    axes: Sequence[int] | None = None,
    new_inputs: Literal["zero", "keep"] = "zero",
    posterior_as_prior: bool = False,
) -> CarryOverReport:
    """Copy the weights of a trained model into one of another dimension, in place.

    Dimension, modes, grid, padding and ``extent`` may differ; widths, depth and kernels
    may not. Whatever belongs to a new axis starts at zero: displacements along it, and
    the weights of its coordinate in the lifting and in graph layers. The same holds for
    input channels that the source does not have, which come last. On fields that are
    constant along new axes, which are not padded, and with the modes of the source, the
    target then computes what the source does. (A graph layer that sums over its
    neighbours finds more of them in a higher dimension, though.) Correlated noise is
    not carried over: fit it again.

    A model that continues to learn wants ``new_inputs="keep"``. If a problem is the
    same forwards and backwards along the new axis, as Darcy flow is, weights of zero
    are a saddle point: training needs long to find out that the coordinate matters.

    Times, displacements and gradients have the unit of ``extent``, and keep their
    values in this unit. If the target's box is longer, by another padding for example,
    say so by its ``extent``.

    Parameters
    ----------
    source : nn.Module
        Trained model with diffusion layers: `FNO`, `FNOGNO`, `GINO`, one of this
        package, or a module that contains one of them. For a checkpoint of
        neuraloperator, pass ``FNO.from_checkpoint(folder, name)``.
    target : nn.Module
        Model of the same kind, with at least as many axes. After an error it is as it
        was.
    axes : sequence of int, optional
        Axis of the target for each axis of the source, by default the first ones.
    new_inputs : {"zero", "keep"}, default "zero"
        Weights of coordinates and input channels that the source does not have: zero,
        or those that the target was built with.
    posterior_as_prior : bool, default False
        Whether the posterior of the source, without its correlations, becomes the prior
        of the target's Bayesian layers. By default they keep the prior that they were
        built with.

    Returns
    -------
    CarryOverReport
        What was copied, what is new, and why.

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import DINOZAUR, carry_over
    >>> flat, solid = DINOZAUR((8, 8), 1, 1, 16), DINOZAUR((8, 8, 8), 1, 1, 16)
    >>> report = carry_over(flat, solid)
    >>> report.extended
    {'lifting.fcs.0.weight': 'zeros for new inputs: coordinate 2'}
    >>> x = torch.randn(1, 1, 12, 12)
    >>> y = solid(x[..., None].expand(-1, -1, -1, -1, 12))
    >>> torch.allclose(y, flat(x)[..., None].expand_as(y), atol=1e-5)
    True
    """
    for role, model in (("source", source), ("target", target)):
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"{role} must be a torch Module, got {type(model).__name__}"
            )
    one_of("new_inputs", new_inputs, ("zero", "keep"))
    entries = list(_entries(source, target, axes, new_inputs, posterior_as_prior))
    report, own = CarryOverReport(), _tensors(target)
    with torch.no_grad():
        for entry in entries:
            if entry.value is not None:
                own[entry.name].copy_(entry.value)
            if entry.kind == "copied":
                report.copied.append(entry.name)
            else:
                getattr(report, entry.kind)[entry.name] = entry.reason
    return report


def _entries(
    source: nn.Module,
    target: nn.Module,
    axes: Sequence[int] | None,
    new_inputs: str,
    posterior_as_prior: bool,
) -> Iterator[Entry]:
    """Yield what becomes of every tensor, before any of them is written."""
    layers = paired_layers(source, target)
    first, second = next(iter(layers.values()))
    axes = _checked_axes(axes, first.order, second.order)
    special = set()
    for prefix, (old, new) in layers.items():
        check_layers(prefix, old, new)
        for entry in carried(old, new, axes, posterior_as_prior):
            yield replace(entry, name=prefix + entry.name)
        special |= {prefix + name for name in SPECIAL}
    before, after = named_inputs(source, axes), named_inputs(target)
    theirs, own = _tensors(source), _tensors(target)
    reason = "noise belongs to its problem: call fit_noise"
    for name in _names_in_noise(source):
        yield Entry(name, "left_out", reason)
        del theirs[name]
    for name in _names_in_noise(target):
        yield Entry(name, "new", reason)
        del own[name]
    for name in sorted((theirs.keys() ^ own.keys()) - special):
        role, other = ("source", "target") if name in theirs else ("target", "source")
        raise ValueError(
            f"{name!r} of the {role} is not in the {other}; build both models with the "
            "same options, and pass what is inside of a wrapper"
        )
    for name in own:
        if name in before and name in after:
            start = own[name].clone() if new_inputs == "keep" else None
            labels = before[name], after[name]
            yield _by_inputs(name, theirs[name], own[name], *labels, start)
        elif name not in special:
            value = _reshaped(name, theirs[name], own[name])
            yield Entry(name, "copied", value=value)


def _by_inputs(
    name: str,
    old: Tensor,
    new: Tensor,
    before: list[Input],
    after: list[Input],
    start: Tensor | None,
) -> Entry:
    """Copy a weight whose columns belong to named inputs; new ones are those given."""
    if old.shape[0] != new.shape[0]:
        raise ValueError(_other_shape(name, old, new))
    for kind, number, _ in (label for label in before if label not in after):
        raise ValueError(
            f"the source has {kind} {number} in {name!r}, but the target has none; "
            "build it with that input: in_channels for channels, "
            "positional_embedding='grid' for coordinates"
        )
    value = torch.zeros_like(new) if start is None else start
    value[:, [after.index(label) for label in before]] = old.to(value)
    added = [f"{kind} {i}" for kind, i, more in after if (kind, i, more) not in before]
    if not added:
        return Entry(name, "copied", value=value)
    what = "zeros" if start is None else "as built"
    reason = f"{what} for new inputs: {', '.join(dict.fromkeys(added))}"
    return Entry(name, "extended", reason, value)


def _reshaped(name: str, old: Tensor, new: Tensor) -> Tensor:
    """Return a tensor in the other's shape; gates have a 1 for each axis."""
    shapes = [[n for n in tensor.shape if n != 1] for tensor in (old, new)]
    if old.shape != new.shape and shapes[0] != shapes[1]:
        raise ValueError(_other_shape(name, old, new))
    return old.reshape(new.shape)


def _other_shape(name: str, old: Tensor, new: Tensor) -> str:
    return (
        f"{name!r} has shape {tuple(old.shape)} in the source and {tuple(new.shape)} "
        "in the target; build both models with the same widths, and with diffusion "
        "layers, as other spectral weights belong to their modes"
    )


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    state = model.state_dict()
    return {name: v.detach() for name, v in state.items() if isinstance(v, Tensor)}


def _names_in_noise(model: nn.Module) -> list[str]:
    """Return the names of tensors of a correlated noise and of its amplitude."""
    noises = [n for n, m in model.named_modules() if isinstance(m, CorrelatedNoise)]
    return [k for k in _tensors(model) if any(k.startswith(f"{n}.") for n in noises)]


def _checked_axes(axes: Any, old: int, new: int) -> tuple[int, ...]:
    if new < old:
        raise ValueError(
            f"the target has {new} axes and the source {old}; weights carry over to as "
            "many axes or to more"
        )
    try:
        found = tuple(map(operator.index, range(old) if axes is None else axes))
    except TypeError:
        found = ()  # not a sequence, or not of integers
    if len(found) != old or len(set(found) & set(range(new))) != old:
        raise ValueError(
            f"axes (={axes}) must be {old} different axes of the target, from 0 to "
            f"{new - 1}: one for each axis of the source"
        )
    return found
