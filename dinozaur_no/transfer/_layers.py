"""Diffusion layers of two models: which ones belong together, and what carries over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._torch import in_double
from ..layers.bayesian import BayesianDiffusionConv
from ..layers.conditional import ConditionalDiffusionConv
from ..layers.diffusion import DiffusionSpectralConv
from ..uncertainty.noise import modules_outside_noise

#: Tensors of a layer that describe its posterior, and its prior.
_POSTERIOR, _PRIOR = ("raw_scale", "raw_tril"), ("prior_mean", "prior_scale")
#: Tensors of a layer with a number for each axis, and the place of that axis.
_PER_AXIS = {"raw_displacement": -1, "displacement_weight": -2}
#: Tensors of a layer that `carried` knows more about than their shape.
SPECIAL = (*_POSTERIOR, *_PRIOR, *_PER_AXIS, "time_weight", "shell_weight")

Pairs = dict[str, tuple[DiffusionSpectralConv, DiffusionSpectralConv]]


@dataclass(frozen=True)
class Entry:
    """What becomes of one tensor."""

    name: str
    kind: Literal["copied", "extended", "new", "left_out"]
    reason: str = ""
    value: Tensor | None = None  # None if nothing is written


def _entry(name: str, value: Tensor, reason: str) -> Entry:
    """Write a value that is the source's, unless there is a reason for another."""
    return Entry(name, "extended" if reason else "copied", reason, value)


def paired_layers(source: nn.Module, target: nn.Module) -> Pairs:
    """Return the diffusion layers of both models, by the prefix of their tensors."""
    found = []
    for role, model in (("source", source), ("target", target)):
        outside = set(map(id, modules_outside_noise(model)))
        layers = {
            f"{name}." if name else "": module
            for name, module in model.named_modules()
            if isinstance(module, DiffusionSpectralConv) and id(module) in outside
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
        names = [", ".join(name.rstrip(".") for name in layers) for layers in found]
        raise ValueError(
            f"the source has {len(old)} diffusion layers ({names[0]}) and the target "
            f"{len(new)} ({names[1]}); build both with the same n_layers, and pass "
            "what is inside of a wrapper"
        )
    return {name: (old[name], new[name]) for name in old}


def carried(
    old: DiffusionSpectralConv,
    new: DiffusionSpectralConv,
    axes: Sequence[int],
    posterior_as_prior: bool,
) -> Iterator[Entry]:
    """Yield what becomes of the tensors of one layer that are `SPECIAL`."""
    ratios = in_double([old.extent[i] / new.extent[j] for i, j in enumerate(axes)])
    for name, place in _PER_AXIS.items():
        there, given = getattr(new, name, None), getattr(old, name, None)
        if there is None:
            continue
        value = torch.zeros_like(there, requires_grad=False)
        if given is None:
            yield _entry(name, value, "zeros: the source has none")
            continue
        shape = [1] * given.ndim
        shape[place] = len(axes)
        index = torch.tensor(axes, device=value.device)
        moved = in_double(given) * ratios.view(shape)
        value.index_copy_(place, index, moved.to(value))
        added = sorted(set(range(new.order)) - set(axes))
        reason = f"zeros along new axes: {', '.join(map(str, added))}"
        yield _entry(name, value, reason if added else "")
    if isinstance(new, ConditionalDiffusionConv):
        weight = getattr(old, "time_weight", None)
        reason = "zeros: the source has none" if weight is None else ""
        value = torch.zeros_like(new.time_weight) if weight is None else weight
        yield _entry("time_weight", value.detach(), reason)
    if old.shell_weight is not None and new.shell_weight is not None:
        # Shells are equally wide, so the source's last one is all shells beyond it.
        index = torch.arange(new.shells).clamp(max=old.shells - 1)
        yield _entry("shell_weight", old.shell_weight.detach()[index], "")
    yield from _posterior(old, new, axes, ratios, posterior_as_prior)


def _posterior(
    old: DiffusionSpectralConv,
    new: DiffusionSpectralConv,
    axes: Sequence[int],
    ratios: Tensor,
    as_prior: bool,
) -> Iterator[Entry]:
    for role, layer in (("source", old), ("target", new)):
        if as_prior and not isinstance(layer, BayesianDiffusionConv):
            raise ValueError(
                f"posterior_as_prior needs Bayesian layers, but the {role} has a "
                f"{type(layer).__name__}"
            )
    if not isinstance(new, BayesianDiffusionConv):
        if isinstance(old, BayesianDiffusionConv):
            reason = "the target has no posterior; its times are the medians"
            for name in _there(old):
                yield Entry(name, "left_out", reason)
        return
    if not isinstance(old, BayesianDiffusionConv):
        reason = "as built: the source has no posterior"
        yield from (Entry(name, "new", reason) for name in _there(new))
        return
    places, factors = _places(old, new, axes, ratios)
    rows = in_double(old.posterior_scale_tril) * factors[:, None]
    grown = len(places) < new.posterior_size
    reason = "displacements along new axes are as built, and independent"
    for name, value in _extended_posterior(rows, places, new).items():
        yield _entry(name, value, reason if grown else "")
    mean, scale = in_double(old._mean()) * factors, rows.norm(dim=1)
    for name, value in (("prior_mean", mean), ("prior_scale", scale)):
        if not as_prior:
            yield Entry(name, "new", "as built: the prior of the target")
            continue
        prior = in_double(getattr(new, name)).clone()
        prior[places] = value
        yield _entry(name, prior, "the posterior of the source")


def _extended_posterior(
    rows: Tensor, places: Tensor, new: BayesianDiffusionConv
) -> dict[str, Tensor]:
    """Return the posterior of more random numbers; others are independent, as built.

    ``rows`` is a square root of the covariance of the random numbers at ``places``.
    """
    root = torch.diag(in_double(new.posterior_scale_tril).norm(dim=1))
    root[places] = 0.0
    root[places[:, None], places] = rows
    if bool(root.triu(1).any()):  # axes changed their order
        upper = torch.linalg.qr(root.T)[1]
        root = upper.T * upper.diagonal().sign()
    diagonal = root.diagonal()
    below = (root / diagonal[:, None])[new._below(root.device)]
    if new.raw_tril is not None:
        return {"raw_scale": diagonal.log(), "raw_tril": below}
    if bool(below.any()):
        raise ValueError(
            "the posterior of the source has correlations, but the target was built "
            "with covariance='diagonal'; build it with 'full'"
        )
    return {"raw_scale": diagonal.log()}


def _places(
    old: BayesianDiffusionConv,
    new: BayesianDiffusionConv,
    axes: Sequence[int],
    ratios: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return places of the source's random numbers in the target, and their factors."""
    times = old.raw_time.numel()
    places, factors = torch.arange(times), torch.ones(times, dtype=torch.float64)
    if old.raw_displacement is None or new.raw_displacement is None:
        return places, factors
    shape = new.raw_displacement.shape
    numbers = times + torch.arange(shape.numel()).view(shape)
    scales = ratios.expand(old.raw_displacement.shape)
    return (
        torch.cat([places, numbers[..., list(axes)].flatten()]),
        torch.cat([factors, scales.flatten()]),
    )


def _there(layer: BayesianDiffusionConv) -> list[str]:
    return [n for n in (*_POSTERIOR, *_PRIOR) if getattr(layer, n) is not None]


def check_layers(
    prefix: str, old: DiffusionSpectralConv, new: DiffusionSpectralConv
) -> None:
    """Raise an error if layers differ in more than axes, modes, box and posterior."""
    where = repr(prefix[:-1]) if prefix else "the layer"
    both: dict[str, tuple[Any, Any]] = {
        "in_channels": (old.in_channels, new.in_channels),
        "out_channels": (old.out_channels, new.out_channels),
        "kernels": (old.kernels, new.kernels),
        "gradient_features": (
            old.gradient_weight is not None,
            new.gradient_weight is not None,
        ),
        "bias": (old.bias is not None, new.bias is not None),
    }
    if old.gradient_weight is not None:
        both["feature_grid"] = old.feature_grid, new.feature_grid
    if isinstance(old, ConditionalDiffusionConv):
        if not isinstance(new, ConditionalDiffusionConv):
            kind = "Bayesian" * isinstance(new, BayesianDiffusionConv)
            raise ValueError(
                f"{where} depends on a condition in the source, but not in the target; "
                f"build the target with conv_module=Conditional{kind}DiffusionConv."
                f"configure(n_conditions={old.n_conditions})"
            )
        both["n_conditions"] = old.n_conditions, new.n_conditions
    if old.drift:
        both["drift"] = True, new.drift
    for name, (a, b) in both.items():
        if a != b:
            option = f"{name}={a!r}"
            if prefix and name in ("in_channels", "out_channels"):  # of a model's layer
                option = f"hidden_channels={a} (fno_hidden_channels of a graph model)"
            raise ValueError(
                f"{name} of {where} is {a} in the source and {b} in the target; build "
                f"the target with {option}"
            )
    if max(old.shells, new.shells) == 1:
        return
    a, b = old.shell_width, new.shell_width
    if 1 in (old.shells, new.shells) or abs(a - b) > 1e-6 * a:
        wanted = max(2, round(new.shells * b / a)) if a else old.shells
        raise ValueError(
            f"{where} has {old.shells} shells of width {a:.4g} in the source and "
            f"{new.shells} of width {b:.4g} in the target; build the target with "
            f"shells={wanted}, and with modes that make them equally wide"
        )
