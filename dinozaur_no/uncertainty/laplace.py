r"""`LastLayerLaplace`: an exact posterior of the weights of the last layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._torch import evaluating, standard_normal
from .._validation import one_of, positive_int
from ._base import Fields, checked_model, inputs_and_target, sum_of_squares
from ._last_layer import find_last_layer, look_at_last_layer
from ._linear_posterior import LinearPosterior
from ._sampling import joined, predictive_of
from .predictive import Predictive


class LastLayerLaplace(LinearPosterior):
    r"""A trained model with a Gaussian posterior over the weights of its last layer.

    The projection of neuraloperator's models ends with a layer that is linear at each
    point, :math:`u = W \phi`, where :math:`\phi` is its input and a constant 1 for the
    bias. With Gaussian noise the negative log-posterior is quadratic in W, so its
    Hessian is exact, and the same for each output channel [1]_:

    .. math:: H = \frac{C}{\sigma^2} \sum_i \phi_i \phi_i^T + \alpha I .

    Each row of W is :math:`\mathcal{N}(w, H^{-1})`, where w are the trained weights.
    The variance at a point is :math:`\phi^T H^{-1} \phi`. Everything but the last
    layer is fixed. Calling it calls the model.

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
        C, how many times the data count. The points of a field are not independent,
        so a C below 1 can be sensible; above 1 the posterior is narrower than Bayes'.
    layer : str, optional
        Name of the last linear layer, by default that of the ``projection``.

    Attributes
    ----------
    gram : Tensor
        :math:`\sum_i \phi_i \phi_i^T` in float64.
    squares, count : Tensor
        Sum of the squared residuals, and how many they are.

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

    def __init__(
        self,
        model: nn.Module,
        noise_variance: float = math.exp(-4),
        prior_precision: float = 1.0,
        scale: float = 1.0,
        layer: str | None = None,
    ) -> None:
        super().__init__()
        self.model = checked_model(model)
        self.layer_name, last = find_last_layer(model, layer)
        like: Any = last.weight
        p = like[0].numel() + (last.bias is not None)
        self._start_noise(noise_variance, like.device)
        self._start_posterior(p, prior_precision, scale, like.device)

    @classmethod
    def paper(cls, model: nn.Module, layer: str | None = None) -> LastLayerLaplace:
        """The paper's setting: sigma^2 = e^-4, C = 500, alpha = 10^6."""
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

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model with the same arguments."""
        return self.model(*args, **kwargs)

    @torch.no_grad()
    def fit(self, loader: Iterable[Any], progress: bool = True) -> LastLayerLaplace:
        """Find the posterior from the training data, in one pass over them.

        What was found before is forgotten. Fit again when the model has changed.

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
        gram, count = torch.zeros_like(self.gram, dtype=torch.float64), 0
        squares = gram.new_zeros(())
        with evaluating(self.model):
            for batch in _with_bar(loader) if progress else loader:
                args, kwargs, target = inputs_and_target(batch)
                seen = look_at_last_layer(self.model, self.layer, args, kwargs)
                prediction = seen.fields(seen.outputs)
                if not count:
                    _check_same(self.model(*args, **kwargs), prediction)
                more, numbers, _ = sum_of_squares(prediction, target)
                squares, count = squares + more.double(), count + numbers
                for rows in seen.design(len(gram)):
                    gram += rows.mT @ rows
        if not count:
            raise ValueError("loader is empty; the posterior needs training data")
        if not bool(gram.isfinite().all()):
            raise ValueError(
                "the features of the last layer are not finite; look for nan or inf in "
                "the data and in the weights"
            )
        self.gram, self.squares = gram, squares
        self.count = gram.new_tensor(count)
        return self

    @torch.no_grad()
    def sample(
        self,
        *args: Any,
        n_samples: int = 100,
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        **kwargs: Any,
    ) -> Fields:
        """Draw weights of the last layer and apply them to the same input.

        Everything before the last layer is computed once.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the model.
        n_samples : int, default 100
            Number of draws.
        generator : torch.Generator, optional
            Source of randomness on the model's device, by default torch's global one.
        chunk_size : int, optional
            Draws to compute together. It changes memory and time, and the draws by
            rounding only.

        Returns
        -------
        Tensor, or dict of Tensors
            Draws without noise, (n_samples, *shape of the output).
        """
        return joined(self._chunks(args, kwargs, n_samples, generator, chunk_size))

    @torch.no_grad()
    def predict(
        self,
        *args: Any,
        n_samples: int = 100,
        method: Literal["closed_form", "samples"] = "closed_form",
        generator: torch.Generator | None = None,
        chunk_size: int | None = None,
        keep_samples: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Predictive distribution, exactly or from draws.

        Parameters
        ----------
        *args, **kwargs
            Arguments of the model.
        method : {"closed_form", "samples"}, default "closed_form"
            Whether the mean is the model's output and the variance that of the formula,
            without draws; or both are those of draws.
        n_samples, generator, chunk_size
            As for `sample`, if there are draws.
        keep_samples : bool, default True
            Whether the result holds the draws.

        Returns
        -------
        Predictive, or dict of Predictive
        """
        one_of("method", method, ("closed_form", "samples"))
        noise = self.noise_variance
        if method == "samples":
            chunks = self._chunks(args, kwargs, n_samples, generator, chunk_size)
            return predictive_of(chunks, noise, keep_samples)
        positive_int("n_samples", n_samples)
        factor = self._factor()
        with evaluating(self.model):
            seen = look_at_last_layer(self.model, self.layer, args, kwargs)
        mean, variance = seen.fields(seen.outputs), seen.variances(factor)
        if isinstance(mean, dict):
            return {k: Predictive(mean[k], variance[k], noise) for k in mean}
        return Predictive(mean, variance, noise)

    def extra_repr(self) -> str:
        """The hyperparameters, for ``print``."""
        return (
            f"layer={self.layer_name!r}, "
            f"noise_variance={self.noise_variance.item():.4g}, "
            f"prior_precision={self.prior_precision.item():.4g}, "
            f"scale={self.scale.item():.4g}"
        )

    def _chunks(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        n_samples: int,
        generator: torch.Generator | None,
        chunk_size: int | None,
    ) -> Iterator[Fields]:
        """Draws of the output, some at a time. All weights are drawn before."""
        n = positive_int("n_samples", n_samples)
        if chunk_size is not None:
            chunk_size = positive_int("chunk_size", chunk_size)
        factor = self._factor()
        shape = (n, *self.weights.shape)
        deviations = standard_normal(shape, factor, generator) @ factor.mT
        with evaluating(self.model):
            seen = look_at_last_layer(self.model, self.layer, args, kwargs)
        yield from seen.draws(deviations, chunk_size)

    @contextmanager
    def _drawing(self) -> Iterator[list[nn.Module]]:
        with evaluating(self.model):
            yield [self.model]


def _check_same(expected: Fields, found: Fields) -> None:
    """Whether the last layer's outputs are really those of the model."""
    pairs = [(expected, found)]
    if isinstance(found, dict):
        pairs = [(expected[key], found[key]) for key in found]
    for a, b in pairs:
        if not torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise ValueError(
                "the outputs of the last layer are not those of the model; pass the "
                "model without what follows, or another `layer`"
            )


def _with_bar(loader: Iterable[Any]) -> Iterable[Any]:
    try:
        from tqdm import tqdm
    except ImportError:
        return loader
    bar: Iterable[Any] = tqdm(loader, desc="Laplace", unit="batch")
    return bar
