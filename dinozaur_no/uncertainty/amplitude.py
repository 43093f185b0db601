"""Amplitudes of noise that depend on the input and on the prediction."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .._torch import full_precision
from .._validation import positive_int
from ..layers.diffusion import DiffusionSpectralConv
from ._fields import Args, Fields, Kwargs

#: Steps of the optimiser, its learning rate and weight decay.
_STEPS, _RATE, _DECAY = 300, 1e-2, 1e-3
#: Every so many batches one is kept to judge the fit by, every so many steps.
_JUDGED_BATCH, _JUDGED_STEP = 5, 20
#: Logarithms of amplitudes stay between plus and minus this, also for unusual inputs.
_LARGEST = 2.0


class FieldAmplitude(nn.Module):
    """A small operator from input and prediction to the log-amplitude of noise.

    It is for `CorrelatedNoise` on grids: two layers of heat diffusion between
    pointwise ones. At first the amplitude is 1 everywhere. Any other module can take
    its place that is called as this one.

    Parameters
    ----------
    in_channels : int, default 1
        Channels of the model's input, its first argument, on the grid of the output.
    out_channels : int, default 1
        Channels of the model's output.
    n_dim : int, default 2
        Number of axes of the grid.
    width : int, default 12
        Number of hidden channels.
    n_modes : int, default 8
        Number of modes along each axis.
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 1,
        n_dim: int = 2,
        width: int = 12,
        n_modes: int = 8,
    ) -> None:
        super().__init__()
        n_in = positive_int("in_channels", in_channels)
        n_out = positive_int("out_channels", out_channels)
        d, width = positive_int("n_dim", n_dim), positive_int("width", width)
        modes = (positive_int("n_modes", n_modes),) * d
        self.lifting = nn.Conv1d(n_in + n_out, width, 1)
        self.layers = nn.ModuleList(
            DiffusionSpectralConv(width, width, modes, gradient_features=False)
            for _ in range(2)
        )
        self.skips = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(2))
        self.projection = nn.Conv1d(width, n_out, 1)
        nn.init.zeros_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)  # type: ignore[arg-type]

    def forward(self, prediction: Tensor, x: Tensor, *_: Any, **__: Any) -> Tensor:
        """Compute the logarithm of the amplitude, shaped like the prediction.

        Parameters
        ----------
        prediction : Tensor
            Predicted fields (b, c, *grid).
        x : Tensor
            Input fields (b, c, *grid), the first argument of the model. Others are not
            used.
        """
        grid = prediction.shape[2:]
        if x.shape[2:] != grid:
            raise ValueError(
                f"x has shape {tuple(x.shape)} and prediction "
                f"{tuple(prediction.shape)}; FieldAmplitude needs both on one grid"
            )
        channels = self.lifting.in_channels, self.projection.out_channels
        if (x.shape[1] + prediction.shape[1], prediction.shape[1]) != channels:
            raise ValueError(
                f"x has {x.shape[1]} channels and prediction {prediction.shape[1]}, "
                f"but FieldAmplitude was built with in_channels="
                f"{channels[0] - channels[1]} and out_channels={channels[1]}"
            )
        dtype = self.lifting.weight.dtype
        fields = torch.cat([x.to(dtype), prediction.to(dtype)], 1)
        with full_precision(fields.device.type):
            hidden = functional.gelu(self.lifting(fields.flatten(2)))
            for layer, skip in zip(self.layers, self.skips):
                diffused = layer(hidden.unflatten(2, grid)).flatten(2)
                hidden = functional.gelu(diffused + skip(hidden))
            found: Tensor = self.projection(hidden).unflatten(2, grid)
        return found


class Seen(NamedTuple):
    """A batch of residuals, the variance of samples, and what the amplitude sees."""

    residuals: Sequence[Tensor]
    variances: Sequence[Tensor]
    prediction: Fields
    args: Args
    kwargs: Kwargs


def log_amplitudes(
    module: nn.Module, prediction: Fields, args: Args, kwargs: Kwargs
) -> list[Tensor]:
    """Call an amplitude; return one bounded logarithm for each predicted field."""
    found = module(prediction, *args, **kwargs)
    if isinstance(prediction, Mapping):
        agrees = isinstance(found, Mapping) and found.keys() == prediction.keys()
        pairs = [(prediction[k], found[k]) for k in prediction] if agrees else []
    else:
        pairs = [(prediction, found)]
    if not pairs or any(
        not isinstance(a, Tensor) or a.shape != p.shape for p, a in pairs
    ):
        kind = getattr(found, "shape", type(found).__name__)
        raise ValueError(
            f"amplitude returned {kind}; it must return the log-amplitude in the shape "
            "of the prediction"
        )
    return [_LARGEST * torch.tanh(a / _LARGEST) for _, a in pairs]


def fit_amplitude(module: nn.Module, seen: Sequence[Seen], temperature: float) -> None:
    """Fit an amplitude to the likelihood of single points, by a bounded descent.

    Residuals are Gaussian with the squared amplitude, up to one factor, plus the
    variance of the samples. The model that made the predictions stays as it is. If
    there are enough batches, every fifth judges the fit, and the best state of the
    amplitude is kept. An amplitude without parameters stays, too.
    """
    parameters = list(module.parameters())
    if not parameters:
        return
    if torch.is_inference_mode_enabled():
        raise ValueError(
            "the amplitude of the noise is fitted by gradients, which inference_mode "
            "forbids; call fit_noise outside of torch.inference_mode()"
        )
    total = sum(float(r.double().square().sum()) for s in seen for r in s.residuals)
    if not total:
        raise ValueError(
            "all residuals are 0, so the noise has no amplitude to fit; compare the "
            "predictions with targets"
        )
    level = (total / sum(r.numel() for s in seen for r in s.residuals)) ** 0.5
    judges = seen[_JUDGED_BATCH - 1 :: _JUDGED_BATCH]
    others = [s for i, s in enumerate(seen) if (i + 1) % _JUDGED_BATCH]

    # The spectrum determines it later.
    factor = torch.zeros((), device=parameters[0].device, requires_grad=True)

    def loss(own: Seen) -> Tensor:
        logs = log_amplitudes(module, own.prediction, own.args, own.kwargs)
        parts = []
        for r, spread, log in zip(own.residuals, own.variances, logs):
            exact = log.reshape(r.shape).float()
            known = (temperature / level**2) * spread.to(exact)
            variance = torch.exp(2 * (exact + factor)) + known
            parts.append(variance.log() + (r.to(exact) / level).square() / variance)
        return torch.cat([part.flatten() for part in parts]).mean()

    def judged() -> float:
        with torch.no_grad():
            return sum(loss(own).item() for own in judges)

    best, state = judged(), copy.deepcopy(module.state_dict())
    module.train().requires_grad_(True)
    with torch.enable_grad():
        optimiser = torch.optim.AdamW([*parameters, factor], _RATE, weight_decay=_DECAY)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
        for step, own in enumerate(itertools.islice(itertools.cycle(others), _STEPS)):
            optimiser.zero_grad()
            loss(own).backward()
            optimiser.step()
            schedule.step()
            if judges and (step + 1) % _JUDGED_STEP == 0 and (new := judged()) < best:
                best, state = new, copy.deepcopy(module.state_dict())
    if judges:
        module.load_state_dict(state)
    module.eval().requires_grad_(False).zero_grad(set_to_none=True)
