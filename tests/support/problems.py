"""Random problems for the layer and the oracle, and the comparison of the two."""

from dataclasses import dataclass
from math import prod

import torch
from support.oracle import dinozaur, heat
from torch import Tensor
from torch.func import functional_call

from dinozaur_no import DiffusionSpectralConv

Tensors = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One layer with one input, described by numbers only.

    Parameters
    ----------
    grid, n_modes, output_shape : tuple of int
        Points per axis of the input, modes per axis, points per axis of the output.
    in_channels, out_channels, batch : int
        The other sizes.
    extent : float or tuple of float
        Length of the box, per axis.
    gradient_features, bias : bool
        Options of the layer.
    kernels, drift, feature_grid
        Options of the layer.
    batch_times : bool
        Give times (and displacements) per item to ``forward``, instead of learned ones.
    seed : int
        Seed of all random numbers.
    """

    grid: tuple[int, ...]
    n_modes: tuple[int, ...]
    output_shape: tuple[int, ...] | None = None
    in_channels: int = 2
    out_channels: int = 3
    batch: int = 2
    extent: float | tuple[float, ...] = 1.0
    gradient_features: bool = True
    bias: bool = True
    kernels: int = 1
    drift: bool = False
    feature_grid: str = "output"
    batch_times: bool = False
    seed: int = 0

    def tensors(self, dtype: torch.dtype = torch.float64) -> Tensors:
        """Draw the input, the parameters, and the cotangent of the output.

        The values are rounded to ``dtype``. The times leave the modes alive, and the
        gradient weights hold the argument of tanh at order one: saturated features
        would hide mistakes.
        """
        generator = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        c, o = self.in_channels, self.out_channels
        lengths = [self.extent] if isinstance(self.extent, float) else self.extent
        scale = prod(lengths) ** (2 / len(lengths))
        lead = (self.batch, c) if self.kernels == 1 else (self.batch, self.kernels, c)
        exponents = torch.rand(lead, generator=generator, dtype=torch.float64)
        times = 10 ** (-4 + 2 * exponents) * scale
        tensors = {
            "x": normal(self.batch, c, *self.grid),
            "times": times if self.batch_times else times[0],
            "cotangent": normal(self.batch, o, *(self.output_shape or self.grid)),
        }
        if self.drift:
            arrows = 0.2 * scale**0.5 * normal(*lead, len(self.grid))
            if self.kernels > 1:
                arrows[:, 0] = 0.0
            tensors["displacement"] = arrows if self.batch_times else arrows[0]
        if self.gradient_features:
            first = times if self.kernels == 1 else times[:, 0]
            first = first if self.batch_times else first[0]
            _, gradient = heat(tensors["x"], first, self.n_modes, self.extent)
            steepness = sum(dv.square() for dv in gradient).mean()
            steepness = torch.where(steepness > 0, steepness, 1.0)
            tensors["gradient_weight"] = normal(c, c) / steepness / c**0.5
            tensors["mix_weight"] = normal(o, (self.kernels + 1) * c)
        elif c != o or self.kernels > 1:
            tensors["mix_weight"] = normal(o, self.kernels * c)
        if self.bias:
            tensors["bias"] = normal(o)
        return {name: value.to(dtype) for name, value in tensors.items()}

    def layer(
        self, dtype: torch.dtype = torch.float64, **options: object
    ) -> DiffusionSpectralConv:
        """Build the layer with the parameters of this problem."""
        layer = DiffusionSpectralConv(
            self.in_channels,
            self.out_channels,
            self.n_modes,
            extent=self.extent,
            gradient_features=self.gradient_features,
            bias=self.bias,
            kernels=self.kernels,
            drift=self.drift,
            **{"feature_grid": self.feature_grid, **options},
        ).to(dtype)
        tensors = self.tensors(dtype)
        if not self.batch_times:
            layer.diffusion_time = tensors["times"]
            if self.drift:
                layer.displacement = tensors["displacement"]
        with torch.no_grad():
            for name in ("gradient_weight", "mix_weight", "bias"):
                parameter = getattr(layer, name)
                assert (parameter is None) == (name not in tensors), name
                if parameter is not None:
                    assert parameter.shape == tensors[name].shape, name
                    parameter.copy_(tensors[name])
        return layer


def solve_by_layer(
    problem: Problem,
    dtype: torch.dtype = torch.float64,
    *,
    second: bool = False,
    **options: object,
) -> Tensors:
    """Output of the layer, and its derivatives (see :func:`derivatives`), by name."""
    tensors = problem.tensors(dtype)
    layer = problem.layer(dtype, **options)
    x = tensors["x"].requires_grad_()
    leaves = {"x": x, **dict(layer.named_parameters())}
    times = shifts = None
    if problem.batch_times:
        leaves["times"] = times = tensors["times"].requires_grad_()
        del leaves["raw_time"]
        if problem.drift:
            leaves["displacement"] = shifts = tensors["displacement"].requires_grad_()
            del leaves["raw_displacement"]
    y = layer(
        x,
        output_shape=problem.output_shape,
        diffusion_time=times,
        displacement=shifts,
    )
    assert y.dtype == dtype
    return {"y": y.detach(), **derivatives(y, tensors["cotangent"], leaves, second)}


def solve_by_oracle(
    problem: Problem, dtype: torch.dtype = torch.float64, *, second: bool = False
) -> Tensors:
    """Solve as :func:`solve_by_layer`, in float64, the data rounded to ``dtype``."""
    leaves = {name: value.double() for name, value in problem.tensors(dtype).items()}
    cotangent = leaves.pop("cotangent")
    lengths = torch.tensor(problem.extent, dtype=torch.float64)
    if not problem.batch_times:
        leaves["raw_time"] = leaves.pop("times").log()
        if problem.drift:
            moving = leaves.pop("displacement") / lengths
            leaves["raw_displacement"] = moving[1:] if problem.kernels > 1 else moving
    for leaf in leaves.values():
        leaf.requires_grad_()
    arguments = dict(leaves)
    if not problem.batch_times:
        arguments["times"] = arguments.pop("raw_time").exp()
        if problem.drift:
            moving = arguments.pop("raw_displacement") * lengths
            if problem.kernels > 1:
                moving = torch.cat([torch.zeros_like(moving[:1]), moving])
            arguments["displacement"] = moving
    elif problem.drift and problem.kernels > 1:  # whose first one stays at rest
        arguments["displacement"] = leaves["displacement"].clone()
        arguments["displacement"][:, 0] = 0.0
    y = dinozaur(
        n_modes=problem.n_modes,
        extent=problem.extent,
        output_shape=problem.output_shape,
        kernels=problem.kernels,
        feature_grid=problem.feature_grid,
        **arguments,
    )
    return {"y": y.detach(), **derivatives(y, cotangent, leaves, second)}


def derivatives(
    y: Tensor, cotangent: Tensor, leaves: Tensors, second: bool = False
) -> Tensors:
    """Gradients of <y, cotangent> by each leaf; if ``second``, also of these gradients.

    The latter are the gradients, by the leaves and the cotangent, of the derivative of
    <y, cotangent> in one random direction.
    """
    cotangent = cotangent.detach().requires_grad_()
    first = torch.autograd.grad(
        y, list(leaves.values()), cotangent, create_graph=second
    )
    results = dict(zip((f"d/d {name}" for name in leaves), first, strict=True))
    if second:
        generator = torch.Generator().manual_seed(0)
        slope = torch.zeros((), dtype=y.dtype)
        for name, leaf in sorted(leaves.items()):
            direction = torch.randn(leaf.shape, generator=generator, dtype=y.dtype)
            size = leaf.detach().abs().max()
            slope = slope + (results[f"d/d {name}"] * direction * size).sum()
        again = torch.autograd.grad(
            slope,
            [*leaves.values(), cotangent],
            allow_unused=True,
            materialize_grads=True,
        )
        names = [f"d2/d {name}" for name in (*leaves, "cotangent")]
        results |= dict(zip(names, again, strict=True))
    return {name: result.detach() for name, result in results.items()}


def relative_error(actual: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """Largest deviation, relative to the largest expected value (or ``floor``)."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    scale = max(expected.abs().max().item(), floor)
    error = (actual.double() - expected.double()).abs().max().item()
    return error / scale if error else 0.0


def assert_same(actual: Tensors, expected: Tensors, tolerance: float) -> None:
    """Compare two solutions, entry by entry."""
    assert actual.keys() == expected.keys()
    errors = {name: relative_error(actual[name], expected[name]) for name in expected}
    # Not "max <= tolerance": that would accept a NaN.
    wrong = {name: e for name, e in errors.items() if not e <= tolerance}
    assert not wrong, wrong


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Compare two fields; the tolerance is relative to the largest expected value."""
    error = relative_error(actual, expected, floor=1e-300)
    assert error <= tolerance, f"relative error {error:.1e} > {tolerance:.0e}"


def as_function(layer: DiffusionSpectralConv, **options: object):
    """Turn the layer into a pure function of its input and its parameters."""
    names = [name for name, _ in layer.named_parameters()]

    def function(x: Tensor, *values: Tensor) -> Tensor:
        return functional_call(
            layer, dict(zip(names, values, strict=True)), (x,), options
        )

    return function, [p.detach().clone() for p in layer.parameters()]
