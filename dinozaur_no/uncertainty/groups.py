"""Groups of parameters for an optimiser, with learning rates that suit them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .._validation import non_negative, positive
from ..layers.bayesian import BayesianDiffusionConv
from ..layers.diffusion import DiffusionSpectralConv
from .noise import modules_outside_noise
from .variational import VariationalOperator


def parameter_groups(
    model: nn.Module,
    lr: float = 1e-3,
    *,
    layer_lr: float | None = None,
    variational_lr: float | None = None,
    weight_decay: float | None = None,
) -> list[dict[str, Any]]:
    """Group parameters for an optimiser: weights, posteriors and times.

    Times and posteriors are stored as logarithms. Weight decay would pull them towards
    a time and a scale of 1, which has no meaning. A posterior also needs a larger
    learning rate.

    Parameters
    ----------
    model : nn.Module
        A model with `DiffusionSpectralConv` or `BayesianDiffusionConv` layers, or a
        `VariationalOperator`.
    lr : float, default 1e-3
        Learning rate of the weights.
    layer_lr : float, optional
        Learning rate of the mixing weights of diffusion layers, and of the times and
        displacements of deterministic ones; ``lr`` by default. All modes share these
        few numbers, which want larger steps than the dense weights of FNO: where FNO's
        rate is 1e-3 to 3e-3, use five times that. Gradient weights, which are small
        numbers, keep ``lr``.
    variational_lr : float, optional
        Learning rate of times, posterior and noise. By default ``10 * lr`` for
        posterior and noise, and ``layer_lr`` for the times of deterministic layers.
    weight_decay : float, optional
        Weight decay of the weights, by default that of the optimiser.

    Returns
    -------
    list of dict
        The weights; mixing weights of layers, if ``layer_lr`` is given; then, without
        weight decay, posterior and noise, if there is a posterior, and the times of
        deterministic layers, if there are any.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import BayesianDiffusionConv, DiffusionSpectralConv
    >>> from dinozaur_no import parameter_groups
    >>> model = FNO((8, 8), 1, 1, 16, conv_module=DiffusionSpectralConv)
    >>> groups = parameter_groups(model, lr=1e-3)
    >>> optimiser = torch.optim.AdamW(groups, weight_decay=1e-4)
    >>> [(group["lr"], group["weight_decay"]) for group in optimiser.param_groups]
    [(0.001, 0.0001), (0.001, 0.0)]
    >>> model = FNO((8, 8), 1, 1, 16, conv_module=BayesianDiffusionConv)
    >>> groups = parameter_groups(model, lr=1e-3)
    >>> optimiser = torch.optim.AdamW(groups, weight_decay=1e-4)
    >>> [(group["lr"], group["weight_decay"]) for group in optimiser.param_groups]
    [(0.001, 0.0001), (0.01, 0.0)]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, got {type(model).__name__}; pass the "
            "model itself, without .parameters()"
        )
    rate = positive("lr", lr)
    layer_rate = rate if layer_lr is None else positive("layer_lr", layer_lr)
    special = 10 * rate if variational_lr is None else variational_lr
    special = positive("variational_lr", special)
    if weight_decay is not None:
        weight_decay = non_negative("weight_decay", weight_decay)
    variational: list[Tensor] = []
    times: list[Tensor] = []
    of_layers: list[Tensor] = []
    for module in modules_outside_noise(model):
        if isinstance(module, DiffusionSpectralConv) and layer_lr is not None:
            own = (module.mix_weight, module.shell_weight)
            of_layers += [p for p in own if p is not None]
        if isinstance(module, BayesianDiffusionConv):
            of_layer = (module.raw_scale, module.raw_tril)
            of_kernels = (module.raw_time, module.raw_displacement)
            variational += [p for p in (*of_kernels, *of_layer) if p is not None]
        elif isinstance(module, DiffusionSpectralConv):
            of_kernels = (module.raw_time, module.raw_displacement)
            times += [p for p in of_kernels if p is not None]
        noise = getattr(module, "raw_noise", None)
        if isinstance(module, VariationalOperator) and isinstance(noise, nn.Parameter):
            variational.append(noise)
    if not variational and not times:
        raise ValueError(
            f"model ({type(model).__name__}) contains no DiffusionSpectralConv and no "
            "BayesianDiffusionConv, so there is nothing to group; pass "
            "model.parameters()"
        )
    known = {id(p) for p in variational + times + of_layers}
    weights = [p for p in model.parameters() if id(p) not in known]
    groups: list[dict[str, Any]] = [{"params": weights, "lr": rate}]
    if of_layers:
        groups.append({"params": of_layers, "lr": layer_rate})
    if weight_decay is not None:
        for group in groups:
            group["weight_decay"] = weight_decay
    if variational:
        groups.append({"params": variational, "lr": special, "weight_decay": 0.0})
    if times:
        rate_of_times = layer_rate if variational_lr is None else special
        groups.append({"params": times, "lr": rate_of_times, "weight_decay": 0.0})
    return groups
