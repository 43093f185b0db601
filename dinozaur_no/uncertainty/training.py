"""Training of a `VariationalOperator`: objective and initialisation.

The objective is for neuraloperator's `Trainer`. A trained deterministic model gives
initial weights, and a prior from its times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .._validation import positive, positive_int
from ..layers.bayesian import SHARE_OF_SCALE, BayesianDiffusionConv
from ..layers.diffusion import DiffusionSpectralConv
from .deterministic import Deterministic
from .noise import modules_outside_noise
from .variational import VariationalOperator, kl_weight

#: A narrower prior would leave little room to the data.
_NARROWEST_PRIOR = 0.1

#: Parameters of a layer that only a Bayesian one has.
_OF_THE_POSTERIOR = ("raw_scale", "raw_tril", "prior_mean", "prior_scale")


class VariationalLoss(nn.Module):
    """The negative ELBO in the form that neuraloperator's `Trainer` takes.

    Pass the same object as ``training_loss`` and as ``regularizer``. The first is the
    negative log-likelihood, summed over the fields of a batch as in upstream's losses.
    The second is the share of the KL divergence that belongs to these fields. Over an
    epoch both add up to minus the ELBO, for batches of any size and for all processes
    of DDP together. Closed-form noise is updated with every batch.

    Parameters
    ----------
    operator : VariationalOperator
        The operator to train. Its state is not part of this object's.
    num_data : int
        Number of fields in the whole training set.
    beta : float or "paper", default 1.0
        Weight of the KL divergence, as for `VariationalOperator.elbo`.
    warmup_steps : int, default 0
        Number of batches over which the weight rises from 0 to ``beta``. The
        ``state_dict``, which `Trainer` saves, holds how many have passed.

    Examples
    --------
    A plain loop needs it for the warm-up only::

        objective = VariationalLoss(operator, num_data=len(data), warmup_steps=1000)
        for x, y in loader:
            optimiser.zero_grad()
            loss = objective(operator(x), y) + objective.loss
            loss.backward()
            optimiser.step()
    """

    steps: Tensor

    def __init__(
        self,
        operator: VariationalOperator,
        num_data: int,
        beta: float | Literal["paper"] = 1.0,
        warmup_steps: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(operator, VariationalOperator):
            raise TypeError(
                f"operator must be a VariationalOperator, got {type(operator).__name__}"
                "; wrap the model first"
            )
        self.num_data = positive_int("num_data", num_data)
        self.beta = kl_weight(beta, self.num_data)
        self.warmup_steps = (
            positive_int("warmup_steps", warmup_steps) if warmup_steps else 0
        )
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._operator = (operator,)  # in a tuple, as it is not a part of this module
        self._n_fields = 0

    @property
    def operator(self) -> VariationalOperator:
        """The operator to train."""
        return self._operator[0]

    def forward(self, prediction: Any, y: Any, **inputs: Any) -> Tensor:
        """Sum the negative log-likelihood over the fields of the batch.

        Parameters
        ----------
        prediction, y : Tensor, or dict of Tensors
            Prediction in training mode, and target.
        **inputs
            Arguments of the model by name, which correlated noise may depend on.
        """
        if self.operator.training and torch.is_grad_enabled():
            self.operator.update_noise(prediction, y)
            self.steps += 1
        likelihood = self.operator.log_likelihood(prediction, y, inputs=inputs)
        self._n_fields = len(likelihood)
        return -likelihood.sum()

    def reset(self) -> None:
        """Forget the last batch; `Trainer` calls it before each one."""
        self._n_fields = 0

    @property
    def kl_weight(self) -> float:
        """Weight of the KL divergence in the current step."""
        if not self.warmup_steps:
            return self.beta
        return self.beta * min(1.0, self.steps.item() / self.warmup_steps)

    @property
    def loss(self) -> Tensor:
        """The KL divergence, weighted for the fields of the last batch."""
        share = self.kl_weight * self._n_fields / self.num_data
        return share * self.operator.kl_divergence()


def warm_start(
    model: nn.Module,
    trained: nn.Module | Mapping[str, Any],
    scale: float | None = None,
) -> nn.Module:
    """Copy the weights of a trained deterministic model, in place.

    The learned times become posterior medians, so that in evaluation mode the model
    computes what the trained one did.

    Parameters
    ----------
    model : nn.Module
        Model with `BayesianDiffusionConv` layers, or a `VariationalOperator` of one.
    trained : nn.Module or mapping
        The same model with `DiffusionSpectralConv` layers, alone or in `Deterministic`,
        or its ``state_dict``. Modes and extent must be the same too; a ``state_dict``
        does not hold them.
    scale : float, optional
        Initial standard deviation of ln tau, by default the current one. That of
        displacements is a tenth of it, as a share of the box.

    Returns
    -------
    nn.Module
        ``model``.
    """
    inner = model.model if isinstance(model, VariationalOperator) else model
    trained = trained.model if isinstance(trained, Deterministic) else trained
    if not isinstance(trained, (nn.Module, Mapping)):
        raise TypeError(
            f"trained (={trained!r}) must be a model or its state_dict; load a file "
            "first, with torch.load(path, weights_only=True)"
        )
    state = dict(trained.state_dict() if isinstance(trained, nn.Module) else trained)
    state.pop("_metadata", None)
    own = {k: v for k, v in inner.state_dict().items() if k != "_metadata"}
    missing = [
        k
        for k in own
        if k not in state and k.rsplit(".", 1)[-1] not in _OF_THE_POSTERIOR
    ]
    unknown = [k for k in state if k not in own]
    other = [k for k in state if k in own and state[k].shape != own[k].shape]
    for names, problem in (
        (missing, "lacks {}"),
        (unknown, "has {}, which the model lacks"),
        (other, "has {} in another shape"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(
                f"trained {problem.format(f'{names[0]!r}{more}')}; it must be the same "
                "model, with DiffusionSpectralConv in the place of "
                "BayesianDiffusionConv, and not inside of a wrapper"
            )
    if scale is not None:
        scale = positive("scale", scale)
    inner.load_state_dict({**own, **state})
    for layer in inner.modules():
        if isinstance(layer, BayesianDiffusionConv) and scale is not None:
            scales = torch.full((layer.posterior_size,), scale)
            scales[layer.raw_time.numel() :] *= SHARE_OF_SCALE
            layer.posterior_scale_tril = scales.diag()
    return model


def propose_prior(
    trained: nn.Module, per_layer: bool = False
) -> dict[str, float | list[float]]:
    """Propose the mean and standard deviation of the learned ln tau as a prior.

    Parameters
    ----------
    trained : nn.Module
        Trained model with `DiffusionSpectralConv` layers.
    per_layer : bool, default False
        Whether to propose one prior for each layer, instead of one for all.

    Returns
    -------
    dict
        ``prior_mean`` and ``prior_scale``, to be passed to `VariationalOperator`. A
        scale is at least 0.1.

    Examples
    --------
    >>> from neuralop.models import FNO
    >>> from dinozaur_no import DiffusionSpectralConv, propose_prior
    >>> trained = FNO((8, 8), 1, 1, 16, conv_module=DiffusionSpectralConv)
    >>> {name: round(value, 2) for name, value in propose_prior(trained).items()}
    {'prior_mean': -5.76, 'prior_scale': 2.12}
    """
    times = [
        module.raw_time.detach().cpu().double()
        for module in modules_outside_noise(trained)
        if isinstance(module, DiffusionSpectralConv)
    ]
    if not times:
        raise ValueError(
            f"trained ({type(trained).__name__}) contains no DiffusionSpectralConv, so "
            "it has no times to learn from"
        )
    groups = times if per_layer else [torch.cat([t.flatten() for t in times])]
    means = [float(t.mean()) for t in groups]
    scales = [max(_NARROWEST_PRIOR, float(t.std(correction=0))) for t in groups]
    if per_layer:
        return {"prior_mean": means, "prior_scale": scales}
    return {"prior_mean": means[0], "prior_scale": scales[0]}
