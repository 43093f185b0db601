r"""Diffusion layers whose times and displacements depend on a given condition.

Blocks of neuraloperator pass fields and nothing else to their layers. A condition, such
as a viscosity, therefore reaches the layers beside the call: by `condition`, or by a
model that is wrapped in `Conditioned`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from .._torch import TensorCheckpoints, full_precision
from .._validation import positive_int
from .bayesian import BayesianDiffusionConv
from .diffusion import DiffusionSpectralConv


class ConditionalDiffusionConv(DiffusionSpectralConv):
    r"""Diffusion layer whose times depend on a condition vector.

    For a condition z, such as the parameters of an equation,

    .. math:: \ln \tau(z) = \ln \tau + A z, \qquad b(z) = b + B z,

    where b are the displacements of a layer with ``drift``. A and B start at zero, so
    an untrained layer is a `DiffusionSpectralConv`, whose ``state_dict`` is a part of
    this one. Conditions of zero mean and unit variance suit them best.

    Give the condition by ``with condition(model, z): model(x)``, or wrap the model in
    `Conditioned`.

    Parameters
    ----------
    in_channels, out_channels, n_modes
        As for `DiffusionSpectralConv`.
    n_conditions : int, default 1
        Length of the condition vector.
    **kwargs
        All other options of `DiffusionSpectralConv`.

    Attributes
    ----------
    time_weight : nn.Parameter
        A, with the shape of the times and one more axis for the condition.
    displacement_weight : nn.Parameter or None
        B as shares of the box, with the shape of ``raw_displacement`` and one more axis
        for the condition.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import ConditionalDiffusionConv, condition
    >>> conv = ConditionalDiffusionConv.configure(n_conditions=2)
    >>> model = FNO((12, 12), 1, 1, 32, conv_module=conv)
    >>> x, z = torch.randn(4, 1, 31, 31), torch.randn(4, 2)
    >>> with condition(model, z):
    ...     model(x).shape
    torch.Size([4, 1, 31, 31])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_modes: int | Sequence[int],
        *,
        n_conditions: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, n_modes, **kwargs)
        n = self.n_conditions = positive_int("n_conditions", n_conditions)
        zeros, moving = self.raw_time.new_zeros, self.raw_displacement
        self.time_weight = nn.Parameter(zeros(*self.raw_time.shape, n))
        self.register_parameter(
            "displacement_weight",
            None if moving is None else nn.Parameter(zeros(*moving.shape, n)),
        )
        self._condition: Tensor | None = None

    def extra_repr(self) -> str:
        """Return the arguments that matter, for ``print(model)``."""
        return f"{super().extra_repr()}, n_conditions={self.n_conditions}"

    def _kernel_parameters(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        time, arrows = super()._kernel_parameters(x)
        z = self._condition
        if z is None:
            raise ValueError(
                f"{type(self).__name__} needs a condition; call the model inside "
                "`with condition(model, z):`, or wrap it in Conditioned and pass z=z"
            )
        if z.ndim == 2 and len(z) != len(x):
            raise ValueError(
                f"the condition has shape {tuple(z.shape)}, but the layer got "
                f"{len(x)} items; give one vector ({self.n_conditions},) for all "
                "items or one for each"
            )
        with full_precision(x.device.type):
            time = time * _linear(self.time_weight, z).exp()
            if self.displacement_weight is None:
                return time, arrows
            moved = self._arrows(_linear(self.displacement_weight, z))
            return time, moved if arrows is None or moved is None else arrows + moved


class ConditionalBayesianDiffusionConv(ConditionalDiffusionConv, BayesianDiffusionConv):
    r"""Bayesian diffusion layer whose posterior means depend on a condition vector.

    The condition shifts the means of `BayesianDiffusionConv` as it shifts times and
    displacements of `ConditionalDiffusionConv`. A and B are weights without a
    distribution. Prior, divergence and ``sample_times`` are those of z = 0.

    Parameters
    ----------
    in_channels, out_channels, n_modes
        As for `DiffusionSpectralConv`.
    n_conditions : int, default 1
        Length of the condition vector.
    **kwargs
        All other options of `BayesianDiffusionConv`.

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import BayesianDINOZAUR, ConditionalBayesianDiffusionConv
    >>> from dinozaur_no import Conditioned, VariationalOperator
    >>> conv = ConditionalBayesianDiffusionConv
    >>> model = BayesianDINOZAUR((8, 8), 1, 1, 16, conv_module=conv)
    >>> operator = VariationalOperator(Conditioned(model))
    >>> x, z = torch.randn(4, 1, 16, 16), torch.randn(4, 1)
    >>> operator.predict(x, z=z, n_samples=3).mean.shape
    torch.Size([4, 1, 16, 16])
    """


class Conditioned(TensorCheckpoints):
    """Model that takes its condition as an argument, as data loaders give it.

    Parameters
    ----------
    model : nn.Module
        A model with conditional layers.

    Examples
    --------
    neuraloperator's `Trainer` needs items ``{"x": x, "y": y, "z": z}`` for it.

    >>> import torch
    >>> from dinozaur_no import DINOZAUR, ConditionalDiffusionConv, Conditioned
    >>> model = DINOZAUR((8,), 1, 1, 16, conv_module=ConditionalDiffusionConv)
    >>> Conditioned(model)(torch.randn(4, 1, 32), z=torch.randn(4, 1)).shape
    torch.Size([4, 1, 32])
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        _conditional_layers(model)
        self.model = model

    def forward(self, *args: Any, z: Tensor, **kwargs: Any) -> Any:
        """Call the model with condition z; it gets all other arguments."""
        with condition(self.model, z):
            return self.model(*args, **kwargs)


@contextmanager
def condition(model: nn.Module, z: Tensor) -> Iterator[None]:
    """Give a condition to all conditional layers of a model, inside this context.

    Afterwards the layers have the condition they had before. Inside
    `torch.utils.checkpoint` a layer is called again in the backward pass, which must
    then be inside the context too. Threads that share a model share its condition.

    Parameters
    ----------
    model : nn.Module
        A model with `ConditionalDiffusionConv` layers, or such a layer.
    z : Tensor
        One condition for each item of the batch, (b, n_conditions), or one for all,
        (n_conditions,).

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import ConditionalDiffusionConv, condition
    >>> layer = ConditionalDiffusionConv(1, 1, (8,))
    >>> with condition(layer, torch.tensor([0.5])):
    ...     layer(torch.randn(4, 1, 32)).shape
    torch.Size([4, 1, 32])
    """
    layers = _conditional_layers(model)
    if not isinstance(z, Tensor):
        raise TypeError(f"z (={z!r}) must be a torch.Tensor")
    for n in {layer.n_conditions for layer in layers}:
        if z.ndim not in (1, 2) or z.shape[-1] != n:
            raise ValueError(
                f"z has shape {tuple(z.shape)}, expected (batch, {n}) or ({n},) for "
                f"layers with n_conditions={n}"
            )
    before = [layer._condition for layer in layers]
    for layer in layers:
        layer._condition = z
    try:
        yield
    finally:
        for layer, former in zip(layers, before):
            layer._condition = former


def _conditional_layers(model: Any) -> list[ConditionalDiffusionConv]:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    layers = [m for m in model.modules() if isinstance(m, ConditionalDiffusionConv)]
    if not layers:
        raise ValueError(
            f"model ({type(model).__name__}) contains no ConditionalDiffusionConv; "
            "build it with conv_module=ConditionalDiffusionConv"
        )
    return layers


def _linear(weight: Tensor, z: Tensor) -> Tensor:
    """Apply a weight (*shape, n) to one vector, or to each: (*shape) or (b, *shape)."""
    product = nn.functional.linear(z.to(weight), weight.flatten(0, -2))
    return product.view(*z.shape[:-1], *weight.shape[:-1])
