"""`LinearPosterior`: Bayesian linear regression on features that are given."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._validation import positive, positive_int
from ._base import UncertainOperator
from ._evidence import Moments, best_hyperparameters, log_evidence


class LinearPosterior(UncertainOperator):
    """Posterior and evidence of linear weights, for `LastLayerLaplace`.

    Attributes
    ----------
    raw_precision : Tensor
        Logarithm of the prior precision.
    scale : Tensor
        How many times the data count.
    gram : Tensor
        Sum of the outer products of the features.
    squares, count : Tensor
        Sum of the squared residuals, and how many they are.
    """

    raw_precision: Tensor
    scale: Tensor
    gram: Tensor
    squares: Tensor
    count: Tensor

    @property
    def weights(self) -> Tensor:
        """Mean of the posterior, (output channels, features)."""
        raise NotImplementedError

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

    def log_marginal_likelihood(
        self, noise_variance: float | None = None, prior_precision: float | None = None
    ) -> Tensor:
        r"""Laplace's approximation of the evidence, at the trained weights w.

        .. math:: C \ln p(u | w) + \ln p(w) - \frac12 \ln \det \frac{H}{2 \pi}

        with the likelihood of all residuals, the prior of all weights and H for all
        output channels. It is the exact evidence of the last layer (C = 1) if w
        maximises the posterior; w does not move with the arguments.

        Parameters
        ----------
        noise_variance, prior_precision : float, optional
            By default the present ones.

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

    def _start_posterior(
        self,
        features: int,
        prior_precision: float,
        scale: float,
        device: torch.device,
    ) -> None:
        """Register the buffers, in float64 as sums over many points need it."""
        precision = positive("prior_precision", prior_precision)
        scale = positive("scale", scale)
        gram = torch.zeros(features, features, dtype=torch.float64, device=device)
        self.register_buffer("raw_precision", gram.new_tensor(math.log(precision)))
        self.register_buffer("scale", gram.new_tensor(scale))
        self.register_buffer("gram", gram)
        self.register_buffer("squares", gram.new_zeros(()))
        self.register_buffer("count", gram.new_zeros(()))

    def _factor(self) -> Tensor:
        """F with F F^T the inverse of H.

        From eigenvalues: unlike Cholesky's it exists also where rounding makes H
        singular, as with a tiny prior precision.
        """
        self._check_fitted()
        values, vectors = torch.linalg.eigh(self.gram.double())
        data = values.clamp(min=0) * (self.scale / self.noise_variance)
        factor: Tensor = vectors / (data + self.prior_precision).sqrt()
        return factor

    def _moments(self) -> Moments:
        self._check_fitted()
        scale = self.scale.item()
        values = torch.linalg.eigvalsh(self.gram.double()).clamp(min=0).cpu()
        return Moments(
            eigenvalues=values * scale,
            squares=self.squares.item() * scale,
            count=self.count.item() * scale,
            weights=self.weights.double().square().sum().item(),
            channels=len(self.weights),
        )

    def _check_fitted(self) -> None:
        if not self.count:
            raise ValueError("there is no posterior yet; call fit(loader) first")
