r"""`LastLayerLaplace`: an exact posterior of the weights of the last layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._torch import at_least_single, evaluating, standard_normal
from .._validation import one_of, positive, positive_int
from ._base import UncertainOperator, checked_model
from ._evidence import Moments, best_hyperparameters, log_evidence
from ._fields import Args, Fields, Kwargs, mean_square
from ._last_layer import find_last_layer, look_at_last_layer, sums_over_data
from ._sampling import Sampling
from .noise import CorrelatedNoise, WhiteNoise
from .predictive import Predictive

#: Steps to the noise that agrees with the spread it makes; one or two suffice mostly.
_NOISE_STEPS = 5


class LastLayerLaplace(UncertainOperator):
    r"""A trained model with a Gaussian posterior over the weights of its last layer.

    The projection of neuraloperator's models ends with a layer that is linear at each
    point, :math:`u = W \phi`, where :math:`\phi` is its input and a constant 1 for the
    bias. With Gaussian noise the negative log-posterior is quadratic in W, so its
    Hessian is exact, and the same for each output channel [1]_:

    .. math:: H = \frac{C}{\sigma^2} \sum_i \phi_i \phi_i^T + \alpha I .

    Each row of W is :math:`\mathcal{N}(w, H^{-1})`, where w are the trained weights.
    The variance at a point is :math:`\phi^T H^{-1} \phi`. Everything but the last
    layer is fixed, and is computed once for all samples. Calling it calls the model.

    Parameters
    ----------
    model : nn.Module
        A trained model: `FNO`, `TFNO`, `UNO`, `GINO`, `FNOGNO`, with any convolution,
        perhaps inside a module that pads and crops.
    noise_variance : float, default exp(-4)
        :math:`\sigma^2` in units of the targets.
    prior_precision : float, default 1.0
        :math:`\alpha`; the prior of each weight is :math:`\mathcal{N}(0, 1 / \alpha)`.
    scale : float, default 1.0
        C, the weight of the data. The points of a field are not independent, so a C
        below 1 can be sensible. Above 1 the posterior is too narrow for Bayes' rule.
    layer : str, optional
        Name of the last linear layer, by default that of the ``projection``.
    noise : WhiteNoise or CorrelatedNoise, optional
        Kind of noise, by default independent with the ``noise_variance``. Call
        `fit_noise` to fit it. The posterior keeps its ``noise_variance``.

    Attributes
    ----------
    gram : Tensor
        :math:`\sum_i \phi_i \phi_i^T` in float64.
    squares, count : Tensor
        Sum of the squared residuals, and their number.
    raw_precision, scale : Tensor
        Logarithm of the prior precision, and C.

    References
    ----------
    .. [1] Daxberger, E. et al. "Laplace Redux - Effortless Bayesian Deep Learning"
       (2021). NeurIPS 2021.

    Examples
    --------
    >>> import torch
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import LastLayerLaplace
    >>> operator = LastLayerLaplace(FNO((8, 8), 1, 1, 16))
    >>> x, y = torch.randn(4, 1, 16, 16), torch.randn(4, 1, 16, 16)
    >>> _ = operator.fit([(x, y)], progress=False).optimize_hyperparameters()
    >>> operator.predict(x).std.shape
    torch.Size([4, 1, 16, 16])
    """

    _noise_sets_spread = True
    raw_precision: Tensor
    scale: Tensor
    gram: Tensor
    squares: Tensor
    count: Tensor

    def __init__(
        self,
        model: nn.Module,
        noise_variance: float = math.exp(-4),
        prior_precision: float = 1.0,
        scale: float = 1.0,
        layer: str | None = None,
        noise: WhiteNoise | CorrelatedNoise | None = None,
    ) -> None:
        super().__init__()
        self.model = checked_model(model)
        self.layer_name, last = find_last_layer(model, layer)
        self._init_noise(noise_variance, last.weight.device, noise=noise)
        precision = positive("prior_precision", prior_precision)
        p = last.weight[0].numel() + (last.bias is not None)
        # In float64, as sums over many points need it.
        gram = last.weight.detach().new_zeros(p, p, dtype=torch.float64)
        self.register_buffer("raw_precision", gram.new_tensor(math.log(precision)))
        self.register_buffer("scale", gram.new_tensor(positive("scale", scale)))
        self.register_buffer("gram", gram)
        self.register_buffer("squares", gram.new_zeros(()))
        self.register_buffer("count", gram.new_zeros(()))

    @classmethod
    def paper(cls, model: nn.Module, layer: str | None = None) -> LastLayerLaplace:
        """Construct with the paper's setting: sigma^2 = e^-4, C = 500, alpha = 10^6."""
        return cls(model, math.exp(-4), prior_precision=1e6, scale=500.0, layer=layer)

    @property
    def layer(self) -> nn.Module:
        """The last layer."""
        return self.model.get_submodule(self.layer_name)

    @property
    def weights(self) -> Tensor:
        """Mean of the posterior, (output channels, features), the bias last."""
        layer: Any = self.layer
        weight: Tensor = layer.weight.detach().flatten(1)
        if layer.bias is None:
            return weight
        return torch.cat([weight, layer.bias.detach()[:, None]], 1)

    @property
    def prior_precision(self) -> Tensor:
        """Precision of the prior, a scalar; can be set."""
        return self.raw_precision.exp()

    @prior_precision.setter
    def prior_precision(self, value: float) -> None:
        precision = positive("prior_precision", float(value))
        self.raw_precision.fill_(math.log(precision))

    @property
    def posterior_precision(self) -> Tensor:
        """H, the inverse covariance of the weights of each output channel."""
        self._check_fitted()
        data = self.gram.double() * (self.scale / self.noise_variance).double()
        return data + self.prior_precision * torch.eye(len(data)).to(data)

    @property
    def posterior_covariance(self) -> Tensor:
        """The inverse of H, (features, features)."""
        factor = self._factor()
        return factor @ factor.mT

    @torch.no_grad()
    def fit(self, loader: Iterable[Any], progress: bool = True) -> LastLayerLaplace:
        """Find the posterior from the training data, in one pass over them.

        It replaces any earlier posterior. Fit again when the model has changed.

        Parameters
        ----------
        loader : iterable
            Pairs of input and target, or dicts with the target under ``"y"`` and the
            arguments of the model under their names; a `DataLoader` for example.
        progress : bool, default True
            Whether to show a progress bar, if tqdm is installed.

        Returns
        -------
        LastLayerLaplace
            Itself.
        """
        batches = _with_bar(loader) if progress else loader
        with evaluating(self.model):
            found = sums_over_data(self.model, self.layer, batches, len(self.gram))
        with torch.inference_mode(False):  # whose tensors could not be changed later
            self.gram, self.squares, self.count = (part.clone() for part in found)
        return self

    @torch.no_grad()
    def predict(
        self,
        *args: Any,
        method: Literal["closed_form", "samples"] = "closed_form",
        n_samples: int | None = None,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        keep_samples: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Compute the predictive distribution, exactly or from samples.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the model.
        method : {"closed_form", "samples"}, default "closed_form"
            ``"closed_form"``: the mean is the model's output and the variance that of
            the formula. ``"samples"``: both are those of samples.
        n_samples, generator, chunk_size
            As for `sample`; the closed form does not use them.
        keep_samples : bool, default True
            Whether the result holds the samples, if there are any.

        Returns
        -------
        Predictive, or dict of Predictive
        """
        one_of("method", method, ("closed_form", "samples"))
        if method == "samples":
            options: dict[str, Any] = {"n_samples": n_samples, "generator": generator}
            options |= {"chunk_size": chunk_size, "keep_samples": keep_samples}
            return super().predict(*args, **kwargs, **options)
        self._checked(n_samples, generator, chunk_size)
        factor, noise = self._factor(), self.noise_variance
        with self._one_call():
            seen = look_at_last_layer(self.model, self.layer, args, kwargs)
        exact = at_least_single(seen.outputs.dtype)
        mean, variance = seen.fields(seen.outputs.to(exact)), seen.variances(factor)
        if isinstance(mean, dict):
            found = {k: Predictive(mean[k], variance[k], noise) for k in mean}
            return self._with_noise(found, args, kwargs)
        return self._with_noise(Predictive(mean, variance, noise), args, kwargs)

    def log_marginal_likelihood(
        self, noise_variance: float | None = None, prior_precision: float | None = None
    ) -> Tensor:
        r"""Compute Laplace's approximation of the evidence at the trained weights w.

        .. math:: C \ln p(u | w) + \ln p(w) - \frac12 \ln \det \frac{H}{2 \pi}

        with the likelihood of all residuals, the prior of all weights and H for all
        output channels. It is the exact evidence of the last layer (C = 1) if w
        maximises the posterior; w does not move with the arguments.

        Parameters
        ----------
        noise_variance, prior_precision : float, optional
            By default the current ones.

        Returns
        -------
        Tensor
            A scalar in nats, float64.
        """
        noise = self.noise_variance if noise_variance is None else noise_variance
        prior = self.prior_precision if prior_precision is None else prior_precision
        noise = positive("noise_variance", float(noise))
        prior = positive("prior_precision", float(prior))
        return log_evidence(self._moments(), noise, prior)

    def optimize_hyperparameters(self, max_steps: int = 200) -> Tensor:
        """Set noise and prior precision to a maximum of the evidence.

        Parameters
        ----------
        max_steps : int, default 200
            Number of steps at most; each increases the evidence.

        Returns
        -------
        Tensor
            The evidence, see `log_marginal_likelihood`.
        """
        steps = positive_int("max_steps", max_steps)
        start = self.noise_variance.item(), self.prior_precision.item()
        noise, precision = best_hyperparameters(self._moments(), *start, steps)
        self.noise_variance, self.prior_precision = noise, precision
        return self.log_marginal_likelihood()

    def extra_repr(self) -> str:
        """List the hyperparameters, for ``print``."""
        return (
            f"layer={self.layer_name!r}, {super().extra_repr()}, "
            f"prior_precision={self.prior_precision.item():.4g}, "
            f"scale={self.scale.item():.4g}"
        )

    def _chunks(
        self, args: Args, kwargs: Kwargs, options: Sampling
    ) -> Iterator[Fields]:
        factor = self._factor()
        shape = (options.n_samples, *self.weights.shape)
        deviations = standard_normal(shape, factor, options.generator) @ factor.mT
        with self._one_call():
            seen = look_at_last_layer(self.model, self.layer, args, kwargs)
        return seen.samples(deviations, options.chunk_size)

    def _outputs_for_noise(self, args: Args, kwargs: Kwargs) -> list[Fields]:
        with self._one_call():
            return [self.model(*args, **kwargs)]

    def _variance_beyond_samples(
        self, batches: Iterable[Any], options: Mapping[str, Any]
    ) -> Tensor:
        """Find the noise that, with the spread that it makes, adds up to the error.

        The spread grows with the noise, but more slowly than in proportion, so these
        steps fall to the solution.
        """
        batches = list(batches)
        self._set_noise(mean_square(self._outputs_for_noise, batches))
        for _ in range(_NOISE_STEPS):
            square, spread = self._error_and_spread(batches, options)
            noise = self.noise_variance.to(square)
            self._set_noise(noise * square / (noise + spread))
        return self.noise_variance

    def _factor(self) -> Tensor:
        """Return F with F F^T the inverse of H.

        It is made from eigenvalues. Unlike Cholesky's factor it also exists where
        rounding makes H singular, as with a tiny prior precision.
        """
        self._check_fitted()
        values, vectors = torch.linalg.eigh(self.gram.double())
        data = values.clamp(min=0) * (self.scale / self.noise_variance)
        factor: Tensor = vectors / (data + self.prior_precision).sqrt()
        return factor

    def _moments(self) -> Moments:
        self._check_fitted()
        sums = self.gram, self.squares, self.count
        return Moments.of(*sums, self.weights, self.scale.item())

    def _check_fitted(self) -> None:
        if not self.count:
            raise ValueError("there is no posterior yet; call fit(loader) first")


def _with_bar(loader: Iterable[Any]) -> Iterable[Any]:
    try:
        from tqdm import tqdm
    except ImportError:
        return loader
    bar: Iterable[Any] = tqdm(loader, desc="Laplace", unit="batch")
    return bar
