r"""`BayesianDiffusionConv`: a diffusion layer with a posterior over its times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._torch import full_precision, in_double, standard_normal
from .._validation import numbers_of_shape, one_of, positive, positive_int
from ._fourier import RealBasis
from .diffusion import DiffusionSpectralConv

Covariance = Literal["full", "diagonal"]
SamplePer = Literal["batch", "item"]

#: Initial posterior scale of displacements in units of that of ln tau.
SHARE_OF_SCALE = 0.1
#: Takes a layer, its input and a function that computes the input's coefficients.
Analysis = Callable[["BayesianDiffusionConv", Tensor, Callable[[], Tensor]], Tensor]


class BayesianDiffusionConv(DiffusionSpectralConv):
    r"""Diffusion layer with a Gaussian posterior over the logarithms of its times.

    The model of one layer, with channels i, is [1]_

    1. prior: :math:`\ln \tau_i \sim \mathcal{N}(m_i, s_i^2)`, independent;
    2. approximate posterior: :math:`\ln \tau \sim \mathcal{N}(\mu, L L^T)` with L
       lower triangular, learned together with all other weights.

    In training mode the times are drawn, :math:`\tau = \exp(\mu + L \epsilon)`, and
    gradients flow to :math:`\mu` and L. In evaluation mode they are the posterior
    median :math:`e^\mu`: the layer is then exactly a `DiffusionSpectralConv`, whose
    ``state_dict`` is a part of this one. With ``drift`` the displacements have a
    Gaussian prior and posterior too, jointly with :math:`\ln \tau`.
    `VariationalOperator` draws at prediction and adds the noise, the ELBO and the
    predictive distribution of the whole model.

    Parameters
    ----------
    in_channels, out_channels, n_modes
        As for `DiffusionSpectralConv`.
    prior_mean : float or sequence of float, default ln 0.01
        m, the mean of ln tau, for all channels or each.
    prior_scale : float or sequence of float, default 1.0
        s, the standard deviation of ln tau.
    displacement_prior : float, default 0.1
        With ``drift``, the prior standard deviation of each component of a
        displacement, as a share of the box. Its mean is 0.
    scale_init : float, default 0.02
        Initial standard deviation of ln tau under the posterior, for all channels; that
        of displacements is a tenth of it, as a share of the box. The
        initial :math:`e^\mu` is the option ``time_init``. (The paper starts from
        ``scale_init=0.5, time_init=math.exp(-5)``, and trains much longer.)
    covariance : {"full", "diagonal"}, default "full"
        Whether the n random numbers of a layer, its times and displacements of all
        kernels, may be correlated under the posterior. ``"full"`` learns n (n + 1) / 2
        numbers for L and suits the paper's layer, with one time per channel. With
        ``kernels`` and ``drift`` take ``"diagonal"``, which learns n: the posterior of
        a 2-D model with 64 channels, four layers, ``kernels=4`` and ``drift=True`` adds
        2,560 parameters to 151,745, and ``"full"`` would add 820,480.
    sample_per : {"batch", "item"}, default "batch"
        Whether a training step draws once, or once for each item of the batch.
    **kwargs
        All other options of `DiffusionSpectralConv`.

    Attributes
    ----------
    raw_time : nn.Parameter
        :math:`\mu`, shaped like the times.
    raw_scale : nn.Parameter
        Logarithm of the diagonal of L, (posterior_size,).
    raw_tril : nn.Parameter or None
        Entries of L below its diagonal, row by row, divided by the diagonal entry of
        their row; None without correlation.
    prior_mean, prior_scale : Tensor
        m and s, (posterior_size,).

    References
    ----------
    .. [1] Matveev, A. et al. "Light-Weight Diffusion Multiplier and Uncertainty
       Quantification for Fourier Neural Operators" (2025). NeurIPS 2025.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import BayesianDiffusionConv
    >>> conv = BayesianDiffusionConv.configure(prior_scale=0.5)
    >>> model = FNO((12, 12), 1, 1, 32, conv_module=conv)
    >>> model.fno_blocks.convs[0].sample_times(100).shape
    torch.Size([100, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_modes: int | Sequence[int],
        *,
        prior_mean: float | Sequence[float] = math.log(0.01),
        prior_scale: float | Sequence[float] = 1.0,
        displacement_prior: float = 0.1,
        scale_init: float = 0.02,
        covariance: Covariance = "full",
        sample_per: SamplePer = "batch",
        **kwargs: Any,
    ) -> None:
        super().__init__(in_channels, out_channels, n_modes, **kwargs)
        self.covariance = one_of("covariance", covariance, ("full", "diagonal"))
        self.sample_per = one_of("sample_per", sample_per, ("batch", "item"))
        scale = positive("scale_init", scale_init)
        times, n = self.raw_time.numel(), self.posterior_size
        scales = self.raw_time.new_full((n,), math.log(scale))
        scales[times:] += math.log(SHARE_OF_SCALE)
        self.raw_scale = nn.Parameter(scales.detach())
        below = n * (n - 1) // 2 if covariance == "full" else 0
        self.register_parameter(
            "raw_tril",
            nn.Parameter(self.raw_scale.new_zeros(below)) if below else None,
        )
        self.prior_mean: Tensor
        self.prior_scale: Tensor
        self.register_buffer("prior_mean", self.raw_scale.new_zeros(n))
        self.register_buffer("prior_scale", self.raw_scale.new_zeros(n))
        self._store_prior("prior_mean", prior_mean)
        self._store_prior("prior_scale", prior_scale)
        share = in_double(positive("displacement_prior", displacement_prior))
        self._check_scale("displacement_prior", displacement_prior, share)
        self.prior_scale[times:] = share
        self._analysis: Analysis | None = None
        self._one_sample = False
        self._noise: Tensor | None = None

    def set_prior(
        self,
        mean: float | Sequence[float] | Tensor | None = None,
        scale: float | Sequence[float] | Tensor | None = None,
    ) -> None:
        """Change the prior of ln tau; what is not given stays.

        Parameters
        ----------
        mean, scale : float, sequence of float or Tensor, optional
            One number, or one per channel. Scales are positive.
        """
        if mean is not None:
            self._store_prior("prior_mean", mean)
        if scale is not None:
            self._store_prior("prior_scale", scale)

    @property
    def posterior_size(self) -> int:
        """Number of random numbers: all times, then all displacements."""
        arrows = self.raw_displacement
        return self.raw_time.numel() + (0 if arrows is None else arrows.numel())

    @property
    def posterior_mean(self) -> Tensor:
        """Mean of ln tau under the posterior, shaped like the times; can be set."""
        return self.raw_time

    @posterior_mean.setter
    def posterior_mean(self, value: float | Sequence[float] | Tensor) -> None:
        mean = self._per_channel("posterior_mean", value)
        with torch.no_grad():
            self.raw_time.copy_(mean)

    @property
    def posterior_scale_tril(self) -> Tensor:
        """L with positive diagonal, (posterior_size, posterior_size); can be set.

        Rows and columns are those of ln tau, followed by those of displacements.
        """
        return self.raw_scale.exp()[:, None] * self._unit_tril()

    @posterior_scale_tril.setter
    def posterior_scale_tril(self, value: Tensor) -> None:
        c = self.posterior_size
        try:
            tril = in_double(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"posterior_scale_tril (={value!r}) must be a ({c}, {c}) matrix"
            ) from error
        diagonal = tril.diagonal() if tril.ndim == 2 else tril
        if tril.shape != (c, c) or not bool(tril.isfinite().all()):
            raise ValueError(
                f"posterior_scale_tril has shape {tuple(tril.shape)}; it must be a "
                f"finite ({c}, {c}) matrix"
            )
        if not bool((diagonal > 0).all()) or bool(tril.triu(1).any()):
            raise ValueError(
                "posterior_scale_tril must be lower triangular with a positive "
                "diagonal; torch.linalg.cholesky(covariance) gives such a matrix"
            )
        below = (tril / diagonal[:, None])[self._below(tril.device)]
        if self.raw_tril is None and bool(below.any()):
            raise ValueError(
                "posterior_scale_tril is not diagonal, but the layer was built with "
                "covariance='diagonal'"
            )
        with torch.no_grad():
            self.raw_scale.copy_(diagonal.log())
            if self.raw_tril is not None:
                self.raw_tril.copy_(below)

    @property
    def posterior_covariance(self) -> Tensor:
        """Covariance under the posterior, (posterior_size, posterior_size)."""
        tril = self.posterior_scale_tril
        return tril @ tril.mT

    def kl_divergence(self) -> Tensor:
        r"""Kullback-Leibler divergence of the posterior from the prior, a scalar.

        As it does not change under the exponential map, it is that of the Gaussians,

        .. math:: \sum_i \frac{(L L^T)_{ii} + (\mu_i - m_i)^2}{2 s_i^2} - \frac12
                  + \ln s_i - \ln L_{ii} .
        """
        distance = self._mean() - self.prior_mean
        spread = self.posterior_scale_tril.square().sum(1) + distance.square()
        quadratic = spread / (2 * self.prior_scale.square())
        return (quadratic - 0.5 + self.prior_scale.log() - self.raw_scale).sum()

    def sample_log_times(
        self, n: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw ln tau from the posterior, see `sample_times`."""
        return self.sample_parameters(n, generator)["raw_time"]

    def sample_parameters(
        self, n: int, generator: torch.Generator | None = None
    ) -> dict[str, Tensor]:
        """Draw from the posterior of all random parameters, by their names.

        Parameters
        ----------
        n : int
            Number of draws.
        generator : torch.Generator, optional
            Source of randomness on the layer's device, by default torch's global one.

        Returns
        -------
        dict of Tensor
            ``raw_time``, and ``raw_displacement`` if kernels move, each with n draws
            along a new first axis. Gradients flow to the posterior.
        """
        shape = (positive_int("n", n), self.posterior_size)
        return self._parameters_from(standard_normal(shape, self.raw_time, generator))

    def sample_times(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw diffusion times from the posterior; gradients flow to its parameters.

        Parameters
        ----------
        n : int
            Number of draws.
        generator : torch.Generator, optional
            Source of randomness on the layer's device, by default torch's global one.

        Returns
        -------
        Tensor
            Times, with n draws along a new first axis.
        """
        return self.sample_log_times(n, generator).exp()

    @contextmanager
    def reusing_analysis(self, analysis: Analysis) -> Iterator[None]:
        """Ask ``analysis`` for the coefficients of every input of this layer inside.

        Samples that give the layer the same input can share its coefficients.

        Parameters
        ----------
        analysis : callable
            Called with the layer, its input and a function that computes the
            coefficients. Returns the coefficients.
        """
        self._analysis = analysis
        try:
            yield
        finally:
            self._analysis = None

    @contextmanager
    def one_sample(self) -> Iterator[None]:
        """Use one sample for all calls of this layer inside, in training mode.

        A recurrent model calls its layers once per step of time, and all steps of a
        pass must use the same sample. `VariationalOperator` takes care of it. Steps
        inside `torch.utils.checkpoint` sample again when they are recomputed.
        """
        before = self._one_sample, self._noise
        self._one_sample, self._noise = True, None
        try:
            yield
        finally:
            self._one_sample, self._noise = before

    def extra_repr(self) -> str:
        """Return the arguments that matter, for ``print(model)``."""
        return (
            f"{super().extra_repr()}, covariance={self.covariance!r}, "
            f"sample_per={self.sample_per!r}"
        )

    def _kernel_parameters(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        if not self.training:
            return super()._kernel_parameters(x)
        items = x.shape[0] if self.sample_per == "item" else 1
        shape = (items, self.posterior_size)
        noise = self._noise
        if noise is None or noise.shape != shape:
            noise = standard_normal(shape, self.raw_time)
        self._noise = noise if self._one_sample else None
        drawn = self._parameters_from(noise)
        if self.sample_per == "batch":
            drawn = {name: values[0] for name, values in drawn.items()}
        return drawn["raw_time"].exp(), self._arrows(drawn.get("raw_displacement"))

    def _analyse(self, x: Tensor, basis: RealBasis) -> Tensor:
        if self._analysis is None:
            return super()._analyse(x, basis)
        return self._analysis(self, x, partial(super()._analyse, x, basis))

    def _parameters_from(self, noise: Tensor) -> dict[str, Tensor]:
        """Turn noise (n, posterior_size) into n draws of the random parameters."""
        drawn = self._from_noise(noise)
        parts = {"raw_time": self.raw_time, "raw_displacement": self.raw_displacement}
        there = {name: part for name, part in parts.items() if part is not None}
        pieces = drawn.split([part.numel() for part in there.values()], -1)
        return {
            name: piece.view(-1, *part.shape)
            for (name, part), piece in zip(there.items(), pieces)
        }

    def _from_noise(self, noise: Tensor) -> Tensor:
        """Draw ``mu + L noise`` of all random numbers, which come last."""
        spread = noise
        if self.raw_tril is not None:
            with full_precision(noise.device.type):
                spread = noise @ self._unit_tril().mT
        return self._mean() + self.raw_scale.exp() * spread

    def _mean(self) -> Tensor:
        """Means of all random numbers, (posterior_size,)."""
        if self.raw_displacement is None:
            return self.raw_time.flatten()
        return torch.cat([self.raw_time.flatten(), self.raw_displacement.flatten()])

    def _unit_tril(self) -> Tensor:
        """L with its rows divided by their diagonal entries."""
        like = self.raw_scale
        unit = torch.eye(self.posterior_size, dtype=like.dtype, device=like.device)
        if self.raw_tril is None:
            return unit
        return unit.index_put(self._below(like.device), self.raw_tril)

    def _below(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Rows and columns of the entries below the diagonal."""
        c = self.posterior_size
        rows, columns = torch.tril_indices(c, c, -1, device=device)
        return rows, columns

    def _per_channel(self, name: str, value: Any) -> Tensor:
        numbers = numbers_of_shape(name, value, self.raw_time.shape)
        if not bool(numbers.to(self.raw_time.dtype).isfinite().all()):
            raise ValueError(f"{name} (={value}) must be finite")
        return numbers

    def _store_prior(self, name: str, value: Any) -> None:
        numbers = self._per_channel(name, value).flatten()
        if name == "prior_scale":
            self._check_scale(name, value, numbers)
        with torch.no_grad():
            getattr(self, name)[: len(numbers)] = numbers

    def _check_scale(self, name: str, value: Any, scale: Tensor) -> None:
        """Check scales, by whose squares the KL divergence divides."""
        square = scale.to(self.raw_time.dtype).square()
        if not bool(((scale > 0) & (square > 0) & square.isfinite()).all()):
            raise ValueError(
                f"{name} (={value}) must be positive, with a square that is a "
                f"{self.raw_time.dtype}"
            )
