r"""`VariationalOperator`: noise, ELBO and posterior predictive of a whole model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._validation import one_of, positive_int
from ..layers.bayesian import BayesianDiffusionConv
from ._base import UncertainOperator, checked_model
from ._fields import Args, Fields, Kwargs, sum_of_squares
from ._sampling import Sampling, apply_samples
from .noise import CorrelatedNoise, WhiteNoise

#: Number of fields over which closed-form noise averages.
_NOISE_MEMORY = 150


class VariationalOperator(UncertainOperator):
    r"""A neural operator with a posterior over its diffusion times, and noise.

    It wraps a model whose diffusion layers are `BayesianDiffusionConv`. Observations
    are :math:`u = U_\tau[a] + \sigma \epsilon` with one variance :math:`\sigma^2` for
    all points. Calling it calls the model: in training mode with sampled times, in
    evaluation mode with the posterior medians. A layer that the model calls several
    times in a pass, as recurrent models do, has one sample per pass.

    `sample` and `predict` sample all times first. Parts of the model that do not depend
    on them, such as the lifting, are computed once for all samples of a chunk, and the
    first layer's analysis of its input once for all. A model with graph layers computes
    its samples one by one, whatever the ``chunk_size``; kernels of layers that went
    through `accelerate_gno` are computed once for all. A model that `torch.func.vmap`
    cannot evaluate, because it writes in place for example, also computes them one by
    one, with a warning; ``chunk_size=1`` avoids it. A ``generator`` lives on the
    model's device.

    Parameters
    ----------
    model : nn.Module
        `FNO`, `TFNO`, `GINO`, `FNOGNO` or any other module that contains at least one
        `BayesianDiffusionConv`.
    noise_variance : float, default exp(-4)
        :math:`\sigma^2` in units of the targets of the loss, or its initial value.
    learn_noise : bool or {"closed_form", "gradient"}, default True
        How to learn the noise. True or ``"closed_form"``: `loss` sets it to a running
        average of the squared residuals, which maximises the ELBO given the rest.
        ``"gradient"``: its logarithm is a parameter of the optimiser, which is slow in
        short runs. False: it stays.
    prior_mean, prior_scale : float or sequence of float, optional
        Prior of ln tau, for all layers or one for each (see `propose_prior`); by
        default the prior that the layers were built with.
    noise : WhiteNoise or CorrelatedNoise, optional
        Kind of noise, by default independent with the ``noise_variance``. Call
        `fit_noise` to fit it; from then on `loss` leaves it alone, and the likelihood
        is that of correlated residuals.

    Attributes
    ----------
    model : nn.Module
        The wrapped model.
    raw_noise : Tensor
        Logarithm of the noise variance: a parameter if it is learned by gradient, else
        a buffer.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import BayesianDiffusionConv, VariationalOperator
    >>> fno = FNO((8, 8), 1, 1, 16, conv_module=BayesianDiffusionConv)
    >>> operator = VariationalOperator(fno)
    >>> x, y = torch.randn(4, 1, 16, 16), torch.randn(4, 1, 16, 16)
    >>> operator.loss(operator(x), y, num_data=100).backward()
    >>> operator.predict(x, n_samples=10).std.shape
    torch.Size([4, 1, 16, 16])
    """

    noise_fields: Tensor

    def __init__(
        self,
        model: nn.Module,
        noise_variance: float = math.exp(-4),
        learn_noise: bool | Literal["closed_form", "gradient"] = True,
        prior_mean: float | Sequence[float] | None = None,
        prior_scale: float | Sequence[float] | None = None,
        noise: WhiteNoise | CorrelatedNoise | None = None,
    ) -> None:
        super().__init__()
        self.model = checked_model(model)
        layers = self.layers
        if not layers:
            raise ValueError(
                f"model ({type(model).__name__}) contains no BayesianDiffusionConv; "
                "build it with conv_module=BayesianDiffusionConv (fno_conv_module for "
                "GINO and FNOGNO)"
            )
        if learn_noise is True:
            learn_noise = "closed_form"
        self.learn_noise = one_of(
            "learn_noise", learn_noise, (False, "closed_form", "gradient")
        )
        like = layers[0].raw_time
        learned = learn_noise == "gradient"
        self._init_noise(noise_variance, like.device, learned, noise)
        self.register_buffer("noise_fields", torch.zeros((), device=like.device))
        means = self._per_layer("prior_mean", prior_mean)
        scales = self._per_layer("prior_scale", prior_scale)
        for layer, mean, scale in zip(layers, means, scales):
            layer.set_prior(mean, scale)

    @property
    def layers(self) -> list[BayesianDiffusionConv]:
        """The Bayesian layers of the model, from the first to the last."""
        return [m for m in self.model.modules() if isinstance(m, BayesianDiffusionConv)]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model with the same arguments, in training mode with one sample."""
        with ExitStack() as stack:
            for layer in self.layers if self.training else ():
                stack.enter_context(layer.one_sample())
            return self.model(*args, **kwargs)

    def kl_divergence(self) -> Tensor:
        """Sum the KL divergences of the layers' posteriors from their priors."""
        return torch.stack([layer.kl_divergence() for layer in self.layers]).sum()

    def elbo(
        self,
        prediction: Fields,
        target: Fields,
        num_data: int,
        beta: float | Literal["paper"] = 1.0,
        where: Any = None,
        inputs: Any = None,
    ) -> Tensor:
        r"""Estimate the evidence lower bound of the whole data set from a batch.

        .. math:: N \cdot \frac1b \sum_{n=1}^b \ln p(u_n | \hat u_n) - \beta D_{KL}

        Parameters
        ----------
        prediction, target : Tensor, or dict of Tensors
            As for `log_likelihood`; the prediction is made in training mode.
        num_data : int
            N, the number of fields in the whole training set (under DDP: of all
            processes together).
        beta : float or "paper", default 1.0
            Weight of the KL divergence: 1 is the bound, less during a warm-up.
            ``"paper"`` is the paper's scaling, with the divergence added to the loss of
            every single field, so ``beta = num_data``.
        where, inputs : optional
            As for `log_likelihood`.

        Returns
        -------
        Tensor
            A scalar in nats. It does not change any state.
        """
        n = positive_int("num_data", num_data)
        likelihood = self.log_likelihood(prediction, target, where, inputs)
        if not len(likelihood):
            raise ValueError("prediction and target hold no field: the batch is empty")
        return n * likelihood.mean() - kl_weight(beta, n) * self.kl_divergence()

    def loss(
        self,
        prediction: Fields,
        target: Fields,
        num_data: int,
        beta: float | Literal["paper"] = 1.0,
        where: Any = None,
        inputs: Any = None,
    ) -> Tensor:
        """Update the noise, and return minus `elbo` per field, to be minimised.

        The noise is updated if it is learned in closed form, this module is in training
        mode and gradients are enabled. See `update_noise`.
        """
        if self.training and torch.is_grad_enabled():
            self.update_noise(prediction, target)
        bound = self.elbo(prediction, target, num_data, beta, where, inputs)
        return -bound / num_data

    @torch.no_grad()
    def update_noise(self, prediction: Fields, target: Fields) -> None:
        """Move closed-form noise towards the mean square of these residuals.

        The running average spans about 150 fields; at first it is a plain average.
        Other kinds of noise, and fitted correlated noise, stay as they are. Under DDP
        all processes use the noise of the first one.
        """
        correlated = self.noise is not None and self.noise.fitted
        if self.learn_noise != "closed_form" or correlated:
            return
        squares, numbers, fields = sum_of_squares(prediction, target)
        if not numbers:
            return
        mean_square = (squares / numbers).to(self.noise_fields.dtype)
        finite = mean_square.isfinite()  # a batch that overflowed leaves no trace
        self.noise_fields += fields * finite
        rate = (fields / self.noise_fields.clamp(1, _NOISE_MEMORY)).clamp(max=1)
        before = self.noise_variance
        after = torch.lerp(before, mean_square, rate)
        self._store_noise(torch.where(finite, after, before))

    def extra_repr(self) -> str:
        """List the options, for ``print``."""
        return f"{super().extra_repr()}, learn_noise={self.learn_noise!r}"

    def _chunks(
        self, args: Args, kwargs: Kwargs, options: Sampling
    ) -> Iterator[Fields]:
        with self._lock:  # a call in another thread replaces times for a while
            times = {
                f"{name}.{parameter}".lstrip("."): values
                for name, layer in self.model.named_modules()
                if isinstance(layer, BayesianDiffusionConv)
                for parameter, values in layer.sample_parameters(
                    options.n_samples, options.generator
                ).items()
            }
        return apply_samples(
            self.model, times, args, kwargs, options.chunk_size, self._one_call
        )

    def _outputs_for_noise(self, args: Args, kwargs: Kwargs) -> list[Fields]:
        with self._one_call(active=self.layers), ExitStack() as stack:
            for layer in self.layers:  # they sample, as in training
                stack.enter_context(layer.one_sample())
            return [self.model(*args, **kwargs)]

    def _per_layer(self, name: str, value: Any) -> Sequence[Any]:
        n = len(self.layers)
        if (
            value is None
            or not hasattr(value, "__len__")
            or getattr(value, "ndim", 1) == 0
        ):
            return [value] * n
        if len(value) != n:
            raise ValueError(
                f"{name} has {len(value)} entries, but the model has {n} Bayesian "
                "layers; give one number, or one entry per layer"
            )
        return list(value)


def kl_weight(beta: Any, num_data: int) -> float:
    """Return the weight of the KL divergence as a number."""
    if beta == "paper":
        return float(num_data)
    if not isinstance(beta, Real) or not 0 <= float(beta) < math.inf:
        raise ValueError(f"beta (={beta!r}) must be a number of at least 0 or 'paper'")
    return float(beta)
