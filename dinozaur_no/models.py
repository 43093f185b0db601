"""Models of neuraloperator with diffusion layers, registered under their own names.

neuraloperator registers every subclass of its ``BaseModel``. Importing ``dinozaur_no``
is therefore all that a script needs to find these models by ``get_model(config)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from neuralop.models import FNO, FNOGNO

from .layers.bayesian import BayesianDiffusionConv, Covariance, SamplePer
from .layers.diffusion import DiffusionSpectralConv


class DINOZAUR(FNO):
    """FNO with diffusion layers; ``model_arch: dinozaur`` in a config.

    The options of the layer are arguments of the model, so there is no need for
    ``configure``. Those that are None stay as they are in ``conv_module``: the defaults
    of `DiffusionSpectralConv`, or what ``configure`` gave it.

    Parameters
    ----------
    n_modes, in_channels, out_channels, hidden_channels
        As for `FNO`.
    gradient_features, kernels, drift, shells, feature_grid, extent
        Options of `DiffusionSpectralConv`.
    time_init, displacement_init, axis_method
        The same.
    conv_module : type, default DiffusionSpectralConv
        `DiffusionSpectralConv` or a subclass of it, which gets these options.
    **kwargs
        All other arguments of `FNO`. Those of its weight tensor, such as
        ``factorization``, have no effect.

    Examples
    --------
    >>> import torch
    >>> from dinozaur_no import DINOZAUR
    >>> model = DINOZAUR((12, 12), 1, 1, 32, extent=(2.0, 1.0), drift=True)
    >>> model(torch.randn(2, 1, 32, 16)).shape
    torch.Size([2, 1, 32, 16])
    """

    def __init__(
        self,
        n_modes: Sequence[int],
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        *,
        gradient_features: bool | None = None,
        kernels: int | None = None,
        drift: bool | None = None,
        shells: int | None = None,
        feature_grid: str | None = None,
        extent: float | Sequence[float] | None = None,
        time_init: float | tuple[float, float] | None = None,
        displacement_init: float | tuple[float, float] | None = None,
        axis_method: str | None = None,
        conv_module: type = DiffusionSpectralConv,
        **kwargs: Any,
    ) -> None:
        conv = _configured("conv_module", DiffusionSpectralConv, locals())
        super().__init__(
            n_modes,
            in_channels,
            out_channels,
            hidden_channels,
            conv_module=conv,
            **kwargs,
        )


class BayesianDINOZAUR(DINOZAUR):
    """DINOZAUR with a posterior over its diffusion times.

    In a config it is ``model_arch: bayesiandinozaur``. `VariationalOperator` wraps the
    model for training and for predictions.

    Parameters
    ----------
    n_modes, in_channels, out_channels, hidden_channels
        As for `FNO`.
    prior_mean, prior_scale, displacement_prior, scale_init, covariance, sample_per
        Options of `BayesianDiffusionConv`; None is what ``conv_module`` has.
    conv_module : type, default BayesianDiffusionConv
        `BayesianDiffusionConv` or a subclass of it, which gets these options.
    **kwargs
        All other arguments of `DINOZAUR`.

    Examples
    --------
    >>> from dinozaur_no import BayesianDINOZAUR, VariationalOperator
    >>> model = BayesianDINOZAUR((12, 12), 1, 1, 32, prior_scale=0.5)
    >>> len(VariationalOperator(model).layers)
    4
    """

    def __init__(
        self,
        n_modes: Sequence[int],
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        *,
        prior_mean: float | Sequence[float] | None = None,
        prior_scale: float | Sequence[float] | None = None,
        displacement_prior: float | None = None,
        scale_init: float | None = None,
        covariance: Covariance | None = None,
        sample_per: SamplePer | None = None,
        conv_module: type = BayesianDiffusionConv,
        **kwargs: Any,
    ) -> None:
        conv = _configured("conv_module", BayesianDiffusionConv, locals())
        super().__init__(
            n_modes,
            in_channels,
            out_channels,
            hidden_channels,
            conv_module=conv,
            **kwargs,
        )


class DINOZAURGINO(FNOGNO):
    """Decoder of GINO with diffusion layers: from a regular grid to any points.

    In a config it is ``model_arch: dinozaurgino``. neuraloperator calls this model
    `FNOGNO`: an FNO on a grid, then a graph layer that evaluates its output at points.
    `accelerate_gno` makes the graph layer faster.

    Parameters
    ----------
    in_channels, out_channels
        As for `FNOGNO`.
    gradient_features, kernels, drift, shells, feature_grid, extent
        Options of `DiffusionSpectralConv`; None is what ``fno_conv_module`` has.
    time_init, displacement_init, axis_method
        The same.
    fno_conv_module : type, default DiffusionSpectralConv
        `DiffusionSpectralConv` or a subclass of it, which gets these options. Pass
        `BayesianDiffusionConv` for a posterior over the times.
    **kwargs
        All other arguments of `FNOGNO`.

    Examples
    --------
    >>> from dinozaur_no import DINOZAURGINO
    >>> model = DINOZAURGINO(
    ...     1, 1, fno_n_modes=(4, 4, 4), fno_hidden_channels=8, gno_use_open3d=False
    ... )
    >>> model.fno_blocks.convs[0].diffusion_time.shape
    torch.Size([8])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        gradient_features: bool | None = None,
        kernels: int | None = None,
        drift: bool | None = None,
        shells: int | None = None,
        feature_grid: str | None = None,
        extent: float | Sequence[float] | None = None,
        time_init: float | tuple[float, float] | None = None,
        displacement_init: float | tuple[float, float] | None = None,
        axis_method: str | None = None,
        fno_conv_module: type = DiffusionSpectralConv,
        **kwargs: Any,
    ) -> None:
        conv = _configured("fno_conv_module", DiffusionSpectralConv, locals())
        super().__init__(in_channels, out_channels, fno_conv_module=conv, **kwargs)


def _configured(
    name: str, base: type[DiffusionSpectralConv], arguments: Mapping[str, Any]
) -> type[DiffusionSpectralConv]:
    """Give the class under this name the options of ``base`` that are not None.

    They are those of the model's arguments that ``base`` has as well.
    """
    conv = arguments[name]
    if not (isinstance(conv, type) and issubclass(conv, base)):
        raise TypeError(
            f"{name} (={conv!r}) must be {base.__name__} or a subclass of it; other "
            "layers belong to the models of neuraloperator"
        )
    parameters = inspect.signature(base).parameters.values()
    options = {p.name for p in parameters if p.default is not p.empty}
    given = {k: v for k, v in arguments.items() if k in options and v is not None}
    return conv.configure(**given)
