"""The models of the rows: neuraloperator's, with other convolutions and with padding.

Options that the paper leaves open were chosen for its numbers of parameters: linear
skips in both places of a block, a channel MLP of half the width, lifting and projection
of twice the width. A complex parameter counts as one, which is how the paper's numbers
come about.

What remains different, in ``python -m benchmarks list``: gradient features have 3 c^2
parameters per layer here (c^2 for the products, 2 c^2 for mixing, as in the paper's
equations), while the differences between its rows with and without them are those of
2.5 c^2 + 2 c. Upstream's linear skips have no bias, which explains most of the rest.
"""

import math
from typing import Any

import torch
from neuralop.layers.embeddings import SinusoidalEmbedding
from neuralop.layers.gno_block import GNOBlock
from neuralop.models import FNO, FNOGNO
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.rows import DROPOUT, Row
from benchmarks.training import PaddedOperator
from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    GradientSpectralConv,
    VariationalOperator,
    accelerate_gno,
)
from dinozaur_no.gno import RadiusSearch

IN_CHANNELS = {"darcy": 1, "navier_stokes": 4, "car": 1, "ahmed": 2}
GINO_RANK = 0.4  # that of the paper on GINO

#: Spread of ln tau before there is any; none at all is not a number.
NO_SPREAD = 1e-30


class MeshOperator(nn.Module):
    """FNOGNO whose inputs are encoded by sinusoids and padded with zeros.

    The paper encodes input features and positions of the grid besides those of the
    vertices, which upstream's graph layer does itself. Padding makes the box part of a
    periodic one; only the Fourier layers see it.

    Parameters
    ----------
    operator : FNOGNO
        Takes ``2 * frequencies`` channels per input channel and coordinate.
    padded : tuple of int
        Points per axis that its Fourier layers shall see.
    frequencies : int
        Sinusoids per number, a sine and a cosine of each.
    stretch : float, default 1.0
        What all numbers are multiplied by first. The radius of the operator is one of
        stretched positions.
    """

    def __init__(
        self,
        operator: FNOGNO,
        padded: tuple[int, ...],
        frequencies: int,
        stretch: float = 1.0,
    ) -> None:
        super().__init__()
        self.operator = operator
        self.padded = padded
        self.stretch = stretch
        # Acts on each number by itself.
        self.encoding = SinusoidalEmbedding(1, frequencies, "transformer")

    def forward(self, in_p: Tensor, out_p: Tensor, f: Tensor) -> Tensor:
        """From fields on the grid (1, *grid, c) to vertices (1, vertices, channels)."""
        if len(f) != 1:
            raise ValueError(
                f"f has {len(f)} fields, but one geometry at a time is possible: use a "
                "batch of 1"
            )
        in_p, out_p, f = (self.stretch * numbers for numbers in (in_p, out_p, f))
        grid = in_p.shape[:-1]
        numbers = torch.cat([f[0], in_p], -1).reshape(-1, 1)
        encoded = self.encoding(numbers).reshape(*grid, -1)
        widths = [0, 0]
        for points, padded in zip(reversed(grid), reversed(self.padded), strict=True):
            widths += [0, padded - points]
        latent = self.operator.latent_embedding(
            in_p=functional.pad(in_p, widths), f=functional.pad(encoded, widths)
        )
        for axis, points in enumerate(grid, start=latent.ndim - len(grid)):
            latent = latent.narrow(axis, 0, points)
        values: Tensor = self.operator.integrate_latent(in_p, out_p, latent)
        return values[None]


def build(row: Row) -> nn.Module:
    """The model of a row with random weights; a Bayesian one with its noise."""
    model = assemble(row)
    if row.size.start == "balanced":
        balance(model)
    return VariationalOperator(model) if row.method == "bayesian" else model


def assemble(row: Row) -> nn.Module:
    """The model of a row with the weights that torch and neuraloperator give it."""
    size, options = row.size, convolution(row)
    if row.method == "dropout":
        options["channel_mlp_dropout"] = DROPOUT
    if not row.on_mesh:
        model: nn.Module = PaddedOperator(
            FNO(
                n_modes=size.modes,
                in_channels=IN_CHANNELS[row.dataset],
                out_channels=1,
                hidden_channels=size.width,
                n_layers=size.layers,
                fno_skip="linear",
                channel_mlp_skip="linear",
                # The channels of Navier-Stokes have the coordinates among them.
                positional_embedding="grid" if row.dataset == "darcy" else None,
                **options,
            ),
            size.padded,
        )
    else:
        numbers = IN_CHANNELS[row.dataset] + 3
        model = MeshOperator(
            FNOGNO(
                in_channels=2 * size.frequencies * numbers,
                out_channels=1,
                projection_channel_ratio=2,
                gno_radius=size.stretch * size.radius,
                gno_embed_channels=size.frequencies,
                gno_channel_mlp_hidden_layers=list(size.kernel),
                gno_use_open3d=False,
                gno_use_torch_scatter=False,
                fno_n_modes=size.modes,
                fno_hidden_channels=size.width,
                fno_lifting_channel_ratio=2,
                fno_n_layers=size.layers,
                fno_skip="linear",
                fno_channel_mlp_skip="linear",
                **{f"fno_{name}": value for name, value in options.items()},
            ),
            size.padded,
            size.frequencies,
            size.stretch,
        )
        accelerate_gno(model)
        for block in model.modules():
            if isinstance(block, GNOBlock):
                # All geometries come again in every epoch.
                block.neighbor_search = RadiusSearch(
                    capacity=size.n_train + size.n_test, capacity_bytes=1 << 32
                )
    return model


def balance(model: nn.Module) -> None:
    """Start pointwise layers so that they keep the size of what goes through them.

    As torch starts them, they make it smaller by about the square root of 3 each, and
    their random biases are larger than what is left of it: after four blocks of a
    narrow model nearly all that differs between points and between samples is gone
    (docs/benchmarks.md). Weights of variance 1 / inputs and no biases keep it.
    """
    for layer in model.modules():
        if isinstance(layer, (nn.Conv1d, nn.Linear)):
            nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def convolution(row: Row) -> dict[str, Any]:
    """Options of neuraloperator that tell the models of a dataset apart."""
    if row.method == "bayesian":
        return {"conv_module": bayesian_layer(row)}
    if row.base == "separable":
        return {"separable": True}
    if row.base.startswith("dinozaur"):
        features, times = row.base == "dinozaur", row.size.time_init
        layer = DiffusionSpectralConv.configure
        return {"conv_module": layer(gradient_features=features, time_init=times)}
    options: dict[str, Any] = {}
    if row.base.endswith("_g"):
        options["conv_module"] = GradientSpectralConv
    if row.base.startswith("t"):
        options |= {"factorization": "Tucker", "rank": row.size.low_rank}
    elif row.base.startswith("gino"):
        options |= {"factorization": "Tucker", "rank": GINO_RANK}
    return options


def bayesian_layer(row: Row) -> Any:
    """The paper's start of the posterior, or none yet if there is a warm start."""
    if row.size.warm_epochs:
        return BayesianDiffusionConv.configure(
            scale_init=NO_SPREAD, time_init=row.size.time_init
        )
    return BayesianDiffusionConv.configure(scale_init=0.5, time_init=math.exp(-5))


def count_parameters(row: Row) -> int:
    """Number of parameters, complex ones as one, without making any of them.

    That of the operator: the paper counts no parameters of posteriors.
    """
    with torch.device("meta"):
        model = build(Row(row.dataset, row.base, row.preset))
    return sum(parameter.numel() for parameter in model.parameters())
