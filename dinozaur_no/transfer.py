"""Weights of a trained model for a model of another dimension or number of modes.

No parameter of a diffusion layer depends on the grid or on the modes, and only
displacements have one number per axis. A model of two dimensions therefore has all
parameters of one of three dimensions, except for those that say what happens along the
new axis. `carry_over` sets these to zero. The new model then maps fields that are
constant along the new axis as the old one did.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from neuralop.layers.gno_block import GNOBlock
from neuralop.models import FNO, FNOGNO, GINO
from torch import Tensor, nn

from ._torch import in_double
from .layers.bayesian import BayesianDiffusionConv
from .layers.conditional import ConditionalDiffusionConv
from .layers.diffusion import DiffusionSpectralConv

#: Tensors of a layer that describe its posterior, and its prior.
_POSTERIOR = ("raw_scale", "raw_tril")
_PRIOR = ("prior_mean", "prior_scale")
#: Tensors of a layer with a number for each axis, and the place of that axis.
_PER_AXIS = {"raw_displacement": -1, "displacement_weight": -2}


@dataclass(frozen=True)
class CarryOverReport:
    """Parameters and buffers of the target of `carry_over`, by what became of them.

    Printing it shows a summary.

    Attributes
    ----------
    copied : list of str
        Names of tensors that are those of the source.
    extended : dict
        Names of tensors that hold those of the source and zeros, with the reason.
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
        lines = [f"copied: {len(self.copied)} tensors"]
        for title in ("extended", "new", "left_out"):
            entries = getattr(self, title)
            lines += [f"{title.replace('_', ' ')}: {len(entries)} tensors"]
            lines += [f"  {name}: {reason}" for name, reason in entries.items()]
        return "\n".join(lines)


def carry_over(
    source: nn.Module,
    target: nn.Module,
    *,
    axes: Sequence[int] | None = None,
    posterior_as_prior: bool = False,
) -> CarryOverReport:
    """Copy the weights of a trained model into one of another dimension, in place.

    Dimension, modes, grid, padding and ``extent`` may differ; widths, depth and kernels
    may not. Whatever belongs to a new axis starts at zero: displacements along it, and
    the weights of its coordinate in the lifting and in graph layers. The same holds for
    input channels that the source does not have, which come last. On fields that are
    constant along new axes, and with the modes of the source, the target then computes
    what the source does. (A graph layer that sums over its neighbours finds more of
    them in a higher dimension, though.)

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
    {'lifting.fcs.0.weight': 'new inputs start at zero: coordinate 2'}
    >>> x = torch.randn(1, 1, 12, 12)
    >>> y = solid(x[..., None].expand(-1, -1, -1, -1, 12))
    >>> torch.allclose(y, flat(x)[..., None].expand_as(y), atol=1e-5)
    True
    """
    plan = _Plan(source, target, axes, posterior_as_prior)
    plan.make()
    with torch.no_grad():
        for name, value in plan.values.items():
            plan.target[name].copy_(value)
    return plan.report


class _Plan:
    """New values of all tensors of the target, before any of them is written."""

    def __init__(
        self,
        source: nn.Module,
        target: nn.Module,
        axes: Sequence[int] | None,
        posterior_as_prior: bool,
    ) -> None:
        for name, model in (("source", source), ("target", target)):
            if not isinstance(model, nn.Module):
                raise TypeError(
                    f"{name} must be a torch Module, got {type(model).__name__}"
                )
        self.source, self.target = _tensors(source), _tensors(target)
        self.layers = _paired_layers(source, target)
        first, second = next(iter(self.layers.values()))
        self.axes = _checked_axes(axes, first.order, second.order)
        self.as_prior = posterior_as_prior
        self.inputs = _named_inputs(source, self.axes), _named_inputs(target)
        self.values: dict[str, Tensor] = {}
        self.report = CarryOverReport()

    def make(self) -> None:
        done: set[str] = set()
        for prefix, (old, new) in self.layers.items():
            _check_layers(prefix, old, new)
            self._layer(prefix, old, new)
            done |= {f"{prefix}{name}" for name in (*_POSTERIOR, *_PRIOR, *_PER_AXIS)}
            done.add(f"{prefix}time_weight")
        for name in self.target:
            if name not in done:
                self._tensor(name)
        for name in self.source.keys() - self.target.keys() - done:
            raise ValueError(
                f"{name!r} of the source has no place in the target; build both models "
                "with the same options, and pass what is inside of a wrapper"
            )

    def _tensor(self, name: str) -> None:
        """Copy a tensor that is no matter of a diffusion layer's axes."""
        if name not in self.source:
            raise ValueError(
                f"{name!r} of the target is not in the source; build both models with "
                "the same options, and pass what is inside of a wrapper"
            )
        old, new = self.source[name], self.target[name]
        before, after = (inputs.get(name) for inputs in self.inputs)
        if before is not None and after is not None:
            self._inputs(name, before, after)
        elif old.shape == new.shape or (
            old.numel() == new.numel() and _without_ones(old) == _without_ones(new)
        ):
            self.values[name] = old.reshape(new.shape)
            self.report.copied.append(name)
        else:
            raise ValueError(_other_shape(name, old, new))

    def _inputs(self, name: str, before: list[Hashable], after: list[Hashable]) -> None:
        """Copy a weight whose columns belong to named inputs."""
        old, new = self.source[name], self.target[name]
        if old.shape[0] != new.shape[0]:
            raise ValueError(_other_shape(name, old, new))
        for label in before:
            if label not in after:
                raise ValueError(
                    f"the source has an input {_shown(label)} in {name!r}, but the "
                    "target has none; build it with that input, such as "
                    "positional_embedding='grid' for coordinates"
                )
        value = torch.zeros_like(new)
        value[:, [after.index(label) for label in before]] = old.to(value)
        self.values[name] = value
        added = dict.fromkeys(_shown(label) for label in after if label not in before)
        if added:
            reason = f"new inputs start at zero: {', '.join(added)}"
            self.report.extended[name] = reason
        else:
            self.report.copied.append(name)

    def _layer(
        self, prefix: str, old: DiffusionSpectralConv, new: DiffusionSpectralConv
    ) -> None:
        """Carry over what depends on axes, on a condition or on a posterior."""
        scale = [old.extent[i] / new.extent[j] for i, j in enumerate(self.axes)]
        for name, place in _PER_AXIS.items():
            there = getattr(new, name, None)
            if there is None:
                continue
            value, given = torch.zeros_like(there), getattr(old, name, None)
            if given is not None:
                shape = [1] * given.ndim
                shape[place] = len(scale)
                moved = in_double(given) * in_double(scale).view(shape)
                index = torch.tensor(self.axes, device=value.device)
                value.index_copy_(place, index, moved.to(value))
            self._note(prefix + name, value, given is not None, new.order)
        if isinstance(new, ConditionalDiffusionConv):
            given = getattr(old, "time_weight", None)
            weight = torch.zeros_like(new.time_weight) if given is None else given
            self._note(f"{prefix}time_weight", weight, given is not None, None)
        self._posterior(prefix, old, new)

    def _note(self, name: str, value: Tensor, given: bool, order: int | None) -> None:
        self.values[name] = value.detach()
        if not given:
            self.report.extended[name] = "starts at zero: the source has none"
        elif order is not None and order > len(self.axes):
            added = sorted(set(range(order)) - set(self.axes))
            self.report.extended[name] = f"zeros along new axes: {_listed(added)}"
        else:
            self.report.copied.append(name)

    def _posterior(
        self, prefix: str, old: DiffusionSpectralConv, new: DiffusionSpectralConv
    ) -> None:
        bayesian = isinstance(new, BayesianDiffusionConv)
        if not isinstance(old, BayesianDiffusionConv):
            if self.as_prior:
                raise ValueError(
                    f"posterior_as_prior needs a source with a posterior, but "
                    f"{prefix[:-1]!r} is a {type(old).__name__}"
                )
            reason = "the source has no posterior; this one is as it was built"
            for name in (*_POSTERIOR, *_PRIOR) if bayesian else ():
                if prefix + name in self.target:
                    self.report.new[prefix + name] = reason
            return
        if not isinstance(new, BayesianDiffusionConv):
            if self.as_prior:
                raise ValueError(
                    f"posterior_as_prior needs a target with priors, but "
                    f"{prefix[:-1]!r} is a {type(new).__name__}"
                )
            for name in (*_POSTERIOR, *_PRIOR):
                if prefix + name in self.source:
                    reason = "the target has no posterior; its times are the medians"
                    self.report.left_out[prefix + name] = reason
            return
        self._carry_posterior(prefix, old, new)

    def _carry_posterior(
        self, prefix: str, old: BayesianDiffusionConv, new: BayesianDiffusionConv
    ) -> None:
        """Carry over the covariance; random numbers of new axes are independent."""
        places, factors = self._random_numbers(old, new)
        spread = torch.diag(in_double(new.posterior_scale_tril).diagonal())
        rows = in_double(old.posterior_scale_tril) * factors[:, None]
        spread[places] = 0.0
        spread[places[:, None], places] = rows
        if bool(spread.triu(1).any()):  # axes changed their order
            upper = torch.linalg.qr(spread.T)[1]
            spread = upper.T * upper.diagonal().sign()
        diagonal = spread.diagonal()
        below = (spread / diagonal[:, None])[new._below(spread.device)]
        if new.raw_tril is None and bool(below.any()):
            raise ValueError(
                f"the posterior of {prefix[:-1]!r} has correlations, but the target "
                "was built with covariance='diagonal'; build it with 'full'"
            )
        self.values[f"{prefix}raw_scale"] = diagonal.log()
        if new.raw_tril is not None:
            self.values[f"{prefix}raw_tril"] = below
        kept = "the prior that the target was built with"
        grown = new.posterior_size > old.posterior_size
        for name in _POSTERIOR:
            if prefix + name in self.target and grown:
                reason = "displacements along new axes are independent, as built"
                self.report.extended[prefix + name] = reason
            elif prefix + name in self.target:
                self.report.copied.append(prefix + name)
        for name in _PRIOR:
            if not self.as_prior:
                self.report.new[prefix + name] = kept
                continue
            value = in_double(getattr(new, name)).clone()
            mean = in_double(old._mean()) * factors
            value[places] = mean if name == "prior_mean" else rows.norm(dim=1)
            self.values[prefix + name] = value
            self.report.extended[prefix + name] = "the posterior of the source"

    def _random_numbers(
        self, old: BayesianDiffusionConv, new: BayesianDiffusionConv
    ) -> tuple[Tensor, Tensor]:
        """Return places of the source's random numbers in the target, and factors."""
        times = old.raw_time.numel()
        places, factors = [torch.arange(times)], [torch.ones(times).double()]
        if old.raw_displacement is not None and new.raw_displacement is not None:
            shape = new.raw_displacement.shape
            numbers = torch.arange(shape.numel()).view(shape) + times
            places.append(numbers[..., list(self.axes)].flatten())
            ratio = [old.extent[i] / new.extent[j] for i, j in enumerate(self.axes)]
            arrows = old.raw_displacement.shape
            factors.append(in_double(ratio).expand(arrows).flatten())
        return torch.cat(places), torch.cat(factors)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    state = model.state_dict()
    return {name: v.detach() for name, v in state.items() if isinstance(v, Tensor)}


def _paired_layers(
    source: nn.Module, target: nn.Module
) -> dict[str, tuple[DiffusionSpectralConv, DiffusionSpectralConv]]:
    """Return the diffusion layers of both, by the prefix of their tensors."""
    found = []
    for role, model in (("source", source), ("target", target)):
        layers = {
            f"{name}." if name else "": module
            for name, module in model.named_modules()
            if isinstance(module, DiffusionSpectralConv)
        }
        if not layers:
            raise ValueError(
                f"the {role} ({type(model).__name__}) contains no diffusion layer; "
                "spectral weights of other layers belong to their modes. Build it with "
                "conv_module=DiffusionSpectralConv"
            )
        found.append(layers)
    old, new = found
    if old.keys() != new.keys():
        raise ValueError(
            f"the source has {len(old)} diffusion layers ({_listed(old)}) and the "
            f"target {len(new)} ({_listed(new)}); build both with the same n_layers, "
            "and pass what is inside of a wrapper"
        )
    return {name: (old[name], new[name]) for name in old}


def _checked_axes(axes: Any, old: int, new: int) -> tuple[int, ...]:
    if new < old:
        raise ValueError(
            f"the target has {new} axes and the source {old}; weights carry over to as "
            "many axes or to more"
        )
    if axes is None:
        return tuple(range(old))
    found = tuple(axes)
    if sorted(found) != sorted(set(found) & set(range(new))) or len(found) != old:
        raise ValueError(
            f"axes (={axes}) must be {old} different axes of the target, from 0 to "
            f"{new - 1}: one for each axis of the source"
        )
    return found


def _check_layers(
    prefix: str, old: DiffusionSpectralConv, new: DiffusionSpectralConv
) -> None:
    """Raise an error if layers differ in more than axes, modes, box and posterior."""
    differ = {
        "in_channels": (old.in_channels, new.in_channels),
        "out_channels": (old.out_channels, new.out_channels),
        "kernels": (old.kernels, new.kernels),
        "gradient_features": tuple(m.gradient_weight is not None for m in (old, new)),
        "bias": tuple(m.bias is not None for m in (old, new)),
    }
    if isinstance(old, ConditionalDiffusionConv):
        given = getattr(new, "n_conditions", 0)
        differ["n_conditions"] = (old.n_conditions, given)
    if old.drift:
        differ["drift"] = (True, new.drift)
    for name, (a, b) in differ.items():
        if a != b:
            raise ValueError(
                f"{name} of {prefix[:-1] or 'the layer'!r} is {a} in the source and "
                f"{b} in the target; build the target with {name}={a}"
            )


def _named_inputs(
    model: nn.Module, axes: Sequence[int] | None = None
) -> dict[str, list[Hashable]]:
    """Name the columns of the weights that see coordinates, by the weight's name.

    Coordinates have the number of their axis, in the target if ``axes`` are given.
    """
    found: dict[str, list[Hashable]] = {}
    for name, module in model.named_modules():
        start = f"{name}." if name else ""
        if isinstance(module, (FNO, FNOGNO, GINO)):
            coordinates = _coordinates_of_lifting(module)
            for part in ("lifting", "lifting.fr", "lifting.fi"):
                weight = f"{start}{part}.fcs.0.weight"
                columns = _columns(model, weight)
                if columns:
                    inputs = columns - coordinates
                    names = [("input channel", i) for i in range(inputs)]
                    found[weight] = [*names, *_on_axes(coordinates, axes)]
        elif isinstance(module, GNOBlock):
            weight = f"{start}integral_transform.channel_mlp.fcs.0.weight"
            embedding = module.pos_embedding
            each = 1 if embedding is None else 2 * embedding.num_frequencies
            d = module.coord_dim
            places = [
                (*label, point, i)
                for point in ("y", "x")
                for label in _on_axes(d, axes)
                for i in range(each)
            ]
            rest = _columns(model, weight) - len(places)
            found[weight] = [*places, *(("input channel", i) for i in range(rest))]
    return found


def _coordinates_of_lifting(model: nn.Module) -> int:
    """Count the coordinates that stand behind the other inputs of the lifting."""
    if isinstance(model, FNO):
        return model.n_dim if model.positional_embedding is not None else 0
    return model.in_coord_dim if isinstance(model, FNOGNO) else 0


def _on_axes(d: int, axes: Sequence[int] | None) -> list[tuple[str, int]]:
    numbers = range(d) if axes is None or len(axes) != d else axes
    return [("coordinate", axis) for axis in numbers]


def _columns(model: nn.Module, weight: str) -> int:
    try:
        return int(model.get_parameter(weight).shape[1])
    except AttributeError:
        return 0


def _without_ones(tensor: Tensor) -> list[int]:
    """Return a shape without axes of length 1, which gates have for each axis."""
    return [n for n in tensor.shape if n != 1]


def _other_shape(name: str, old: Tensor, new: Tensor) -> str:
    return (
        f"{name!r} has shape {tuple(old.shape)} in the source and {tuple(new.shape)} "
        "in the target; build both models with the same widths, and with diffusion "
        "layers, as other spectral weights belong to their modes"
    )


def _shown(label: Any) -> str:
    return f"{label[0]} {label[1]}"


def _listed(items: Any) -> str:
    return ", ".join(str(item).rstrip(".") for item in items)
