"""The models of the experiments: neuraloperator's, with padding and initialisation.

Options that the paper leaves open were chosen for its numbers of parameters: linear
skips in both places of a block, a channel MLP of half the width, lifting and projection
of twice the width. A complex parameter counts as one, as in the paper.

Two differences remain, see ``python -m benchmarks list``. Gradient features have 3 c^2
parameters per layer here (c^2 for the products, 2 c^2 for mixing, as in the paper's
equations). The paper's models with and without them differ by 2.5 c^2 + 2 c. Upstream's
linear skips have no bias, which explains most of the rest.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from neuralop.layers.embeddings import SinusoidalEmbedding
from neuralop.layers.gno_block import GNOBlock
from neuralop.models import FNO, FNOGNO
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.experiments import MODELS, Experiment
from benchmarks.presets import Preset
from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    VariationalOperator,
    accelerate_gno,
)
from dinozaur_no.gno import RadiusSearch

IN_CHANNELS = {"darcy": 1, "navier_stokes": 4, "car": 1, "ahmed": 2}
DROPOUT = 0.1

#: Posterior scale of a model that is deterministic so far; 0 has no logarithm.
NO_SCALE = 1e-30


def pad(field: Tensor, padded: Sequence[int], channels_last: bool = False) -> Tensor:
    """Append zeros at the far end of each grid axis.

    A bounded domain becomes part of a periodic one. Unlike the symmetric padding of
    neuraloperator 2.0.0 this can turn an odd grid into an even one, which the spectral
    convolution of that release needs to be exact.
    """
    widths = [0, 0] if channels_last else []
    last = field.ndim - channels_last
    grid = field.shape[last - len(padded) : last]
    for points, more in zip(reversed(grid), reversed(padded), strict=True):
        widths += [0, more - points]
    return functional.pad(field, widths)


def crop(field: Tensor, grid: Sequence[int]) -> Tensor:
    """Remove what :func:`pad` appended to the last axes."""
    for axis, points in enumerate(grid, start=field.ndim - len(grid)):
        field = field.narrow(axis, 0, points)
    return field


class PaddedOperator(nn.Module):
    """A model, from fields to fields on the same grid, that sees a padded grid."""

    def __init__(self, operator: nn.Module, padded: tuple[int, ...]) -> None:
        super().__init__()
        self.operator = operator
        self.padded = padded

    def forward(self, x: Tensor) -> Tensor:
        """Pad, apply the model, crop."""
        return crop(self.operator(pad(x, self.padded)), x.shape[2:])


class MeshOperator(nn.Module):
    """FNOGNO whose inputs are encoded by sinusoids and padded.

    The paper encodes input features and positions of the grid as well as those of the
    vertices. Upstream's graph layer encodes the vertices itself. Only the Fourier
    layers see the padding. All numbers are multiplied by ``stretch`` first; the radius
    of the operator is one of stretched positions.
    """

    def __init__(self, operator: FNOGNO, settings: Preset) -> None:
        super().__init__()
        self.operator = operator
        self.padded = settings.padded
        self.stretch = settings.stretch
        # Acts on each number separately, with a sine and a cosine of each frequency.
        self.encoding = SinusoidalEmbedding(1, settings.frequencies, "transformer")

    def forward(self, in_p: Tensor, out_p: Tensor, f: Tensor) -> Tensor:
        """From fields on the grid (1, *grid, c) to vertices (1, vertices, channels)."""
        in_p, out_p, f = (self.stretch * numbers for numbers in (in_p, out_p, f))
        grid = in_p.shape[:-1]
        numbers = torch.cat([f[0], in_p], -1).reshape(-1, 1)
        encoded = self.encoding(numbers).reshape(*grid, -1)
        latent = self.operator.latent_embedding(
            in_p=pad(in_p, self.padded, channels_last=True),
            f=pad(encoded, self.padded, channels_last=True),
        )
        values: Tensor = self.operator.integrate_latent(in_p, out_p, crop(latent, grid))
        return values[None]


def build(experiment: Experiment) -> nn.Module:
    """Build the model of an experiment; a Bayesian one comes with its noise."""
    make = _build_on_mesh if experiment.on_mesh else _build_on_grid
    model = make(experiment, convolution_options(experiment))
    if experiment.settings.initialisation == "balanced":
        balance(model)
    bayesian = experiment.uncertainty == "bayesian"
    return VariationalOperator(model) if bayesian else model


def _build_on_grid(experiment: Experiment, options: dict[str, Any]) -> nn.Module:
    settings = experiment.settings
    operator = FNO(
        n_modes=settings.modes,
        in_channels=IN_CHANNELS[experiment.dataset],
        out_channels=1,
        hidden_channels=settings.width,
        n_layers=settings.layers,
        fno_skip="linear",
        channel_mlp_skip="linear",
        # The channels of Navier-Stokes have the coordinates among them.
        positional_embedding="grid" if experiment.dataset == "darcy" else None,
        **options,
    )
    return PaddedOperator(operator, settings.padded)


def _build_on_mesh(experiment: Experiment, options: dict[str, Any]) -> nn.Module:
    settings = experiment.settings
    numbers = IN_CHANNELS[experiment.dataset] + 3
    operator = FNOGNO(
        in_channels=2 * settings.frequencies * numbers,
        out_channels=1,
        projection_channel_ratio=2,
        gno_radius=settings.stretch * settings.radius,
        gno_embed_channels=settings.frequencies,
        gno_channel_mlp_hidden_layers=list(settings.kernel),
        gno_use_open3d=False,
        gno_use_torch_scatter=False,
        fno_n_modes=settings.modes,
        fno_hidden_channels=settings.width,
        fno_lifting_channel_ratio=2,
        fno_n_layers=settings.layers,
        fno_skip="linear",
        fno_channel_mlp_skip="linear",
        **{f"fno_{name}": value for name, value in options.items()},
    )
    model = MeshOperator(operator, settings)
    accelerate_gno(model)
    for block in model.modules():
        if isinstance(block, GNOBlock):
            # Every geometry returns in every epoch.
            block.neighbor_search = RadiusSearch(
                capacity=settings.n_train + settings.n_test, capacity_bytes=1 << 32
            )
    return model


def balance(model: nn.Module) -> None:
    """Initialise pointwise layers such that they keep the size of their input.

    With torch's initialisation each of them divides it by about the square root of 3,
    and random biases are larger than what is left. After four blocks of a narrow model
    nearly all differences between points and between samples are gone
    (docs/results.md). Weights of variance 1 / inputs and no biases keep them.
    """
    for layer in model.modules():
        if isinstance(layer, (nn.Conv1d, nn.Linear)):
            nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def convolution_options(experiment: Experiment) -> dict[str, Any]:
    """Return the options of neuraloperator's blocks that make up a model."""
    model, settings = MODELS[experiment.model], experiment.settings
    options = dict(model.options)
    if options.get("rank") == "low":
        options["rank"] = settings.low_rank
    diffusion = layer_options(experiment)
    if diffusion is not None and experiment.uncertainty == "bayesian":
        first = {"scale_init": 0.5, "time_init": math.exp(-5)}  # the paper's
        if settings.warm_epochs:
            first = {"scale_init": NO_SCALE}
        options["conv_module"] = BayesianDiffusionConv.configure(**diffusion, **first)
    elif diffusion is not None:
        options["conv_module"] = DiffusionSpectralConv.configure(**diffusion)
    if experiment.uncertainty == "dropout":
        options["channel_mlp_dropout"] = DROPOUT
    return options


def layer_options(experiment: Experiment) -> dict[str, Any] | None:
    """Return the options of diffusion layers, None for other models."""
    model, settings = MODELS[experiment.model], experiment.settings
    if model.diffusion is None:
        return None
    options = {**model.diffusion, "feature_grid": settings.feature_grid}
    if settings.kernels in ("rest", "drift"):
        options |= {"kernels": 1, "drift": settings.kernels == "drift"}
    elif settings.kernels:
        options |= {"kernels": int(settings.kernels), "drift": True}
    if settings.shells:
        options["shells"] = settings.shells
    if longest := settings.displacement:
        options["displacement_init"] = (longest / 25, longest)
    return options


def count_parameters(experiment: Experiment) -> int:
    """Count parameters, complex ones as one, without allocating any of them.

    Those of a posterior do not count, as in the paper.
    """
    with torch.device("meta"):
        model = build(replace(experiment, uncertainty="none"))
    return sum(parameter.numel() for parameter in model.parameters())
