"""Models of neuraloperator with diffusion layers, registered under their own names.

neuraloperator registers every subclass of its ``BaseModel``. Importing ``dinozaur_no``
is therefore all that a script needs to find these models by ``get_model(config)``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from neuralop.models import FNO, FNOGNO

from .layers.bayesian import BayesianDiffusionConv, Covariance, SamplePer
from .layers.diffusion import DiffusionSpectralConv


class DINOZAUR(FNO):
    """FNO with diffusion layers; ``model_arch: dinozaur`` in a config.

    The options of the layer are arguments of the model, so there is no need for
    ``configure``. Its defaults are those of `DiffusionSpectralConv`.

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
        gradient_features: bool = True,
        kernels: int = 1,
        drift: bool = False,
        shells: int = 1,
        feature_grid: str = "modes",
        extent: float | Sequence[float] = 1.0,
        time_init: float | tuple[float, float] = (1e-4, 1e-1),
        displacement_init: float | tuple[float, float] = (0.01, 0.25),
        axis_method: str = "auto",
        conv_module: type = DiffusionSpectralConv,
        **kwargs: Any,
    ) -> None:
        conv = _configured(
            "conv_module",
            conv_module,
            gradient_features=gradient_features,
            kernels=kernels,
            drift=drift,
            shells=shells,
            feature_grid=feature_grid,
            extent=extent,
            time_init=time_init,
            displacement_init=displacement_init,
            axis_method=axis_method,
        )
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
        Options of `BayesianDiffusionConv`.
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
        prior_mean: float | Sequence[float] = math.log(0.01),
        prior_scale: float | Sequence[float] = 1.0,
        displacement_prior: float = 0.1,
        scale_init: float = 0.02,
        covariance: Covariance = "full",
        sample_per: SamplePer = "batch",
        conv_module: type = BayesianDiffusionConv,
        **kwargs: Any,
    ) -> None:
        conv = _configured(
            "conv_module",
            conv_module,
            BayesianDiffusionConv,
            prior_mean=prior_mean,
            prior_scale=prior_scale,
            displacement_prior=displacement_prior,
            scale_init=scale_init,
            covariance=covariance,
            sample_per=sample_per,
        )
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
        Options of `DiffusionSpectralConv`.
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
        gradient_features: bool = True,
        kernels: int = 1,
        drift: bool = False,
        shells: int = 1,
        feature_grid: str = "modes",
        extent: float | Sequence[float] = 1.0,
        time_init: float | tuple[float, float] = (1e-4, 1e-1),
        displacement_init: float | tuple[float, float] = (0.01, 0.25),
        axis_method: str = "auto",
        fno_conv_module: type = DiffusionSpectralConv,
        **kwargs: Any,
    ) -> None:
        conv = _configured(
            "fno_conv_module",
            fno_conv_module,
            gradient_features=gradient_features,
            kernels=kernels,
            drift=drift,
            shells=shells,
            feature_grid=feature_grid,
            extent=extent,
            time_init=time_init,
            displacement_init=displacement_init,
            axis_method=axis_method,
        )
        super().__init__(in_channels, out_channels, fno_conv_module=conv, **kwargs)


def _configured(
    name: str,
    conv: Any,
    base: type[DiffusionSpectralConv] = DiffusionSpectralConv,
    **options: Any,
) -> type[DiffusionSpectralConv]:
    """Give the class those options that differ from the defaults of ``base``.

    A class without needless options has a readable name, and keeps its own.
    """
    if not (isinstance(conv, type) and issubclass(conv, base)):
        raise TypeError(
            f"{name} (={conv!r}) must be {base.__name__} or a subclass of it; other "
            "layers belong to the models of neuraloperator"
        )
    defaults = inspect.signature(base).parameters
    changed = {k: v for k, v in options.items() if v != defaults[k].default}
    return conv.configure(**changed)
