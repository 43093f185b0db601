"""The layer computes what the paper says: against the oracle, and against analysis."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import pi, sqrt
from typing import Any

import pytest
import torch
from support.oracle import dinozaur, heat
from support.problems import (
    Problem,
    as_function,
    assert_close,
    assert_same,
    relative_error,
    solve_by_layer,
    solve_by_oracle,
)
from torch import Tensor

from dinozaur_no import DiffusionSpectralConv

FLOAT64 = torch.float64

PROBLEMS = {
    "1d-even": Problem(grid=(8,), n_modes=(5,)),
    "1d-odd": Problem(grid=(9,), n_modes=(4,)),
    "1d-modes=grid-even": Problem(grid=(8,), n_modes=(8,)),
    "1d-modes=grid-odd": Problem(grid=(9,), n_modes=(9,)),
    "1d-modes>grid": Problem(grid=(6,), n_modes=(20,)),
    "1d-one-mode": Problem(grid=(6,), n_modes=(1,)),
    "1d-two-points": Problem(grid=(2,), n_modes=(2,), output_shape=(5,)),
    "1d-one-point": Problem(grid=(1,), n_modes=(4,), output_shape=(3,)),
    "1d-long-all-modes": Problem(grid=(768,), n_modes=(768,), batch=1),
    "1d-long-odd": Problem(grid=(405,), n_modes=(300,), output_shape=(501,), batch=1),
    "1d-one-channel": Problem(grid=(7,), n_modes=(5,), in_channels=1, out_channels=1),
    "1d-many-channels": Problem(
        grid=(10,), n_modes=(6,), in_channels=13, out_channels=5, batch=1
    ),
    "1d-time-per-item": Problem(grid=(9,), n_modes=(6,), batch=3, batch_times=True),
    "2d": Problem(grid=(8, 7), n_modes=(4, 5)),
    "2d-square-channels": Problem(grid=(8, 8), n_modes=(6, 6), out_channels=2),
    "2d-extents": Problem(grid=(9, 8), n_modes=(7, 4), extent=(0.5, 3.0)),
    "2d-one-extent": Problem(grid=(6, 7), n_modes=(4, 4), extent=2 * pi),
    "2d-nyquist": Problem(grid=(6, 8), n_modes=(6, 8)),
    "2d-nyquist-one-axis": Problem(grid=(6, 8), n_modes=(6, 5)),
    "2d-up": Problem(grid=(5, 6), n_modes=(4, 4), output_shape=(10, 13)),
    "2d-up-from-nyquist": Problem(grid=(6, 4), n_modes=(6, 9), output_shape=(9, 8)),
    "2d-down": Problem(grid=(12, 11), n_modes=(4, 4), output_shape=(6, 5)),
    "2d-down-below-modes": Problem(
        grid=(12, 11), n_modes=(10, 11), output_shape=(6, 5)
    ),
    "2d-up-and-down": Problem(grid=(12, 5), n_modes=(8, 8), output_shape=(4, 9)),
    "2d-no-bias": Problem(grid=(7, 6), n_modes=(4, 4), bias=False),
    "2d-time-per-item": Problem(
        grid=(7, 6), n_modes=(4, 6), batch_times=True, output_shape=(6, 8)
    ),
    "2d-tall": Problem(grid=(67, 4), n_modes=(12, 4)),
    "2d-flat": Problem(grid=(3, 90), n_modes=(3, 20)),
    "2d-large": Problem(
        grid=(131, 66), n_modes=(12, 12), in_channels=8, out_channels=8
    ),
    "2d-degenerate-axis": Problem(grid=(1, 8), n_modes=(3, 4)),
    "3d": Problem(grid=(6, 5, 8), n_modes=(4, 5, 3), extent=(1.0, 2.0, 0.7)),
    "3d-up": Problem(
        grid=(4, 5, 6), n_modes=(4, 3, 6), output_shape=(5, 7, 8), batch_times=True
    ),
    "3d-down": Problem(grid=(8, 6, 7), n_modes=(8, 6, 6), output_shape=(4, 5, 3)),
    "3d-large": Problem(
        grid=(33, 20, 18), n_modes=(16, 8, 6), output_shape=(37, 19, 31)
    ),
    "4d": Problem(grid=(4, 3, 5, 4), n_modes=(3, 3, 4, 4), batch=1),
    "4d-resized": Problem(
        grid=(4, 3, 5, 4),
        n_modes=(4, 2, 4, 1),
        output_shape=(3, 4, 5, 6),
        extent=(1.0, 0.5, 2.0, 1.5),
        batch_times=True,
    ),
}
PLAIN = {
    f"{name}-plain{'-mixed' if channels == 3 else ''}": replace(
        PROBLEMS[name], gradient_features=False, out_channels=channels
    )
    for name in (
        "1d-even",
        "1d-long-all-modes",
        "2d-extents",
        "2d-no-bias",
        "2d-up-from-nyquist",
        "2d-down-below-modes",
        "2d-time-per-item",
        "3d-up",
        "4d-resized",
    )
    for channels in (2, 3)
}
# The same problems with kernels that move, and with features on the modes' grid.
KINDS: dict[str, dict[str, Any]] = {
    "drift": {"drift": True},
    "kernels": {"kernels": 3},
    "transport": {"kernels": 3, "drift": True},
}
MOVING = {
    f"{name}-{kind}": replace(problem, **options)
    for name, problem in (PROBLEMS | PLAIN).items()
    for kind, options in KINDS.items()
    if "large" not in name and "long" not in name
}
ON_MODES = {
    f"{name}-modes": replace(problem, feature_grid="modes")
    for name, problem in (
        PROBLEMS | {n: p for n, p in MOVING.items() if n.endswith("transport")}
    ).items()
    if problem.gradient_features
}
EVERY = PROBLEMS | PLAIN | MOVING | ON_MODES
SAMPLED = dict(list((PLAIN | MOVING | ON_MODES).items())[::5])


def over(problems: dict[str, Problem]) -> pytest.MarkDecorator:
    """Parametrise a test over problems, with their names as ids."""
    return pytest.mark.parametrize("problem", problems.values(), ids=problems.keys())


# --- fields with known answers ------------------------------------------------------


def mesh(grid: Sequence[int], extent: Sequence[float]) -> list[Tensor]:
    """Coordinates L i / n of the grid points, one broadcastable tensor per axis."""
    axes = [
        L * torch.arange(n, dtype=FLOAT64) / n
        for n, L in zip(grid, extent, strict=True)
    ]
    return list(torch.meshgrid(*axes, indexing="ij"))


def band_limited(
    grid: Sequence[int],
    limits: Sequence[int],
    extent: Sequence[float],
    channels: int = 2,
) -> Tensor:
    """Sample functions with frequencies |k_j| <= limits_j, the same on any grid."""
    generator = torch.Generator().manual_seed(1)
    points = mesh(grid, extent)
    frequencies = torch.cartesian_prod(
        *[torch.arange(-limit, limit + 1) for limit in limits]
    ).reshape(-1, len(grid))
    fields = []
    for _ in range(channels):
        field = torch.zeros(tuple(grid), dtype=FLOAT64)
        for k in frequencies.tolist():
            amplitude, phase = torch.randn(2, generator=generator, dtype=FLOAT64)
            angle = sum(
                2 * pi * kj * p / L for kj, p, L in zip(k, points, extent, strict=True)
            )
            field = field + amplitude * torch.cos(angle + phase)
        fields.append(field)
    return torch.stack(fields)[None] / sqrt(len(frequencies))


def heat_kernel(grid: Sequence[int], extent: Sequence[float], time: float) -> Tensor:
    """Sample the periodic heat kernel as a sum of Gaussians."""
    kernel = torch.ones((), dtype=FLOAT64)
    for x, L in zip(mesh(grid, extent), extent, strict=True):
        images = torch.stack([x + m * L for m in range(-8, 9)])
        gaussians = torch.exp(-images.square() / (4 * time)) / sqrt(4 * pi * time)
        kernel = kernel * gaussians.sum(0)
    return kernel[None, None]


def plain_layer(
    n_modes: Sequence[int], channels: int = 2, **options: object
) -> DiffusionSpectralConv:
    """Build the bare diffusion: no gradient features, no mixing, no bias."""
    return DiffusionSpectralConv(
        channels, channels, n_modes, gradient_features=False, bias=False, **options
    ).double()


def uniform(time: float, channels: int = 2) -> Tensor:
    return torch.full((channels,), time, dtype=FLOAT64)


# --- the oracle itself ----------------------------------------------------------------


def test_oracle_is_the_formula_of_the_paper_on_odd_grids() -> None:
    grid, times = (9, 7), torch.tensor([1e-3, 2e-2], dtype=FLOAT64)
    x = Problem(grid=grid, n_modes=grid).tensors()["x"]
    k = [torch.fft.fftfreq(n, 1 / n, dtype=FLOAT64) for n in grid]
    squared_norm = k[0][:, None] ** 2 + k[1] ** 2
    multiplier = torch.exp(-4 * pi**2 * squared_norm * times[:, None, None])
    spectrum = multiplier * torch.fft.fftn(x, dim=(2, 3))
    v, (_, dv) = heat(x, times, grid)
    assert_close(v, torch.fft.ifftn(spectrum, dim=(2, 3)).real)
    assert_close(dv, torch.fft.ifftn(2j * pi * k[1] * spectrum, dim=(2, 3)).real)


def test_oracle_solves_the_heat_equation_on_a_finer_grid() -> None:
    extent, time = (2.0, 0.5), 3e-3

    def solution(grid: tuple[int, int], rate: Callable, time: float) -> Tensor:
        x, y = mesh(grid, extent)
        decay = torch.exp(-torch.tensor((2 * pi) ** 2 * time, dtype=FLOAT64))
        a, b = 2 * pi * 2 * x / 2.0, 2 * pi * y / 0.5
        return (decay ** (1 + 4) * rate(a, b))[None, None]

    x = solution((8, 5), lambda a, b: torch.sin(a) * torch.cos(b), 0.0)
    v, (dx, dy) = heat(x, uniform(time, 1), (6, 3), extent, (11, 14))
    fine = (11, 14)
    expected = solution(fine, lambda a, b: torch.sin(a) * torch.cos(b), time)
    assert_close(v, expected)
    expected = solution(fine, lambda a, b: 2 * pi * a.cos() * b.cos(), time)
    assert_close(dx, expected)
    expected = solution(fine, lambda a, b: -4 * pi * a.sin() * b.sin(), time)
    assert_close(dy, expected)


@pytest.mark.parametrize("n", [1, 2, 6, 7])
def test_oracle_interpolates_with_the_real_trigonometric_basis(n: int) -> None:
    """All modes at time zero: the cosine alone at the Nyquist frequency."""
    sampled = Problem(grid=(n,), n_modes=(n,)).tensors()["x"]

    def basis(points: int) -> Tensor:
        (x,) = mesh((points,), (1.0,))
        cosines = [torch.cos(2 * pi * k * x) for k in range(n // 2 + 1)]
        sines = [torch.sin(2 * pi * k * x) for k in range(1, (n + 1) // 2)]
        return torch.stack(cosines + sines, dim=1)

    coefficients = torch.linalg.solve(basis(n), sampled[..., None])
    expected = (basis(15) @ coefficients).squeeze(-1)
    actual, _ = heat(sampled, torch.zeros(2, dtype=FLOAT64), (n,), 1.0, (15,))
    assert_close(actual, expected)


# --- values and gradients against the oracle ------------------------------------------


@over(EVERY)
def test_values_and_gradients_agree_with_oracle(problem: Problem) -> None:
    expected = solve_by_oracle(problem)
    for method in ("dense", "fft"):
        actual = solve_by_layer(problem, axis_method=method)
        assert_same(actual, expected, 1e-12)


@over(PROBLEMS | SAMPLED)
def test_single_precision_agrees_with_oracle(problem: Problem) -> None:
    actual = solve_by_layer(problem, torch.float32)
    assert_same(actual, solve_by_oracle(problem, torch.float32), 1e-5)


@over(PROBLEMS | SAMPLED)
def test_second_derivatives_agree_with_oracle(problem: Problem) -> None:
    actual = solve_by_layer(problem, second=True)
    assert_same(actual, solve_by_oracle(problem, second=True), 1e-12)


@over({name: PROBLEMS[name] for name in ("1d-even", "2d-extents", "3d")})
def test_problems_do_not_saturate(problem: Problem) -> None:
    """The comparisons above would be blind if every tanh were at 0 or at 1."""
    tensors = problem.tensors()
    gradient_weight = tensors["gradient_weight"]
    x, times = tensors["x"], tensors["times"]
    c = problem.in_channels
    features = dinozaur(
        x, times, problem.n_modes, problem.extent, gradient_weight=gradient_weight
    )[:, c:]
    assert 0.05 < features.abs().median() < 0.95


@pytest.mark.parametrize("factor", [2, 0.5, [1.5, 0.75]], ids=str)
def test_resolution_scaling_factor_is_an_output_shape(factor: float | list) -> None:
    factors = factor if isinstance(factor, list) else [factor] * 2
    # Rounded as upstream does.
    shape = tuple(round(n * f) for n, f in zip((8, 12), factors, strict=True))
    problem = Problem(grid=(8, 12), n_modes=(6, 6), output_shape=shape)
    layer = problem.layer(resolution_scaling_factor=factor)
    assert_close(layer(problem.tensors()["x"]), solve_by_oracle(problem)["y"])


def test_layout_of_the_input_in_memory_does_not_matter() -> None:
    problem = Problem(grid=(7, 6), n_modes=(5, 4))
    x = problem.tensors()["x"]
    strided = x.permute(3, 0, 2, 1).contiguous().permute(1, 3, 2, 0)
    expanded = x[:1, :1, :1].expand_as(x)
    layer = problem.layer()
    assert_close(layer(strided), layer(x))
    assert_close(layer(expanded), layer(expanded.contiguous()))


def test_times_per_item_are_those_of_single_items() -> None:
    problem = Problem(grid=(7, 6), n_modes=(5, 4), batch=3, batch_times=True)
    tensors, layer = problem.tensors(), problem.layer()
    x, times = tensors["x"], tensors["times"]
    together = layer(x, diffusion_time=times)
    for i in range(problem.batch):
        assert_close(layer(x[i : i + 1], diffusion_time=times[i]), together[i : i + 1])
        layer.diffusion_time = times[i]
        assert_close(layer(x[i : i + 1]), together[i : i + 1])


@over(
    {
        "1d-up": Problem(grid=(4,), n_modes=(4,), output_shape=(5,)),
        "2d": Problem(grid=(4, 3), n_modes=(4, 3), batch=1, extent=(1.0, 2.0)),
        "2d-plain": Problem(grid=(4, 3), n_modes=(2, 3), gradient_features=False),
        "3d": Problem(grid=(3, 2, 3), n_modes=(3, 2, 2), batch=1, out_channels=1),
    }
)
def test_first_and_second_derivatives_by_finite_differences(problem: Problem) -> None:
    function, parameters = as_function(
        problem.layer(), output_shape=problem.output_shape
    )
    arguments = [problem.tensors()["x"], *parameters]
    arguments = [a.requires_grad_() for a in arguments]
    assert torch.autograd.gradcheck(function, arguments)
    assert torch.autograd.gradgradcheck(function, arguments)


def test_derivatives_by_given_times_by_finite_differences() -> None:
    problem = Problem(grid=(3, 4), n_modes=(3, 3), batch_times=True)
    tensors, layer = problem.tensors(), problem.layer()
    x, times = tensors["x"].requires_grad_(), tensors["times"].requires_grad_()

    def function(x: Tensor, times: Tensor) -> Tensor:
        return layer(x, diffusion_time=times)

    assert torch.autograd.gradcheck(function, (x, times))
    assert torch.autograd.gradgradcheck(function, (x, times))


# --- facts about the heat equation ----------------------------------------------------


GRIDS = pytest.mark.parametrize(
    ("grid", "n_modes", "extent"),
    [
        ((16,), (8,), (1.0,)),
        ((9,), (9,), (3.0,)),
        ((8, 11), (6, 5), (1.0, 1.0)),
        ((6, 8), (6, 8), (0.5, 2.0)),
        ((6, 5, 7), (4, 4, 5), (1.0, 2.0, 0.7)),
    ],
    ids=["1d", "1d-odd-full", "2d", "2d-nyquist-extents", "3d-extents"],
)


def resolved(grid: Sequence[int], n_modes: Sequence[int]) -> list[int]:
    """Largest frequencies that the layer keeps and that lie below Nyquist."""
    return [min(m // 2, (n - 1) // 2) for n, m in zip(grid, n_modes, strict=True)]


@GRIDS
def test_time_zero_is_the_identity_on_band_limited_fields(
    grid: tuple, n_modes: tuple, extent: tuple
) -> None:
    layer = plain_layer(n_modes, extent=extent)
    layer.diffusion_time = uniform(1e-300)
    x = band_limited(grid, resolved(grid, n_modes), extent)
    assert_close(layer(x), x)


@GRIDS
def test_infinite_time_is_the_mean(grid: tuple, n_modes: tuple, extent: tuple) -> None:
    layer = plain_layer(n_modes, extent=extent)
    layer.diffusion_time = uniform(1e6)
    x = Problem(grid=grid, n_modes=n_modes).tensors()["x"]
    axes = tuple(range(2, x.ndim))
    assert_close(layer(x), x.mean(axes, keepdim=True).expand_as(x))


@GRIDS
def test_modes_beyond_the_kept_ones_vanish(
    grid: tuple, n_modes: tuple, extent: tuple
) -> None:
    """One axis at a time: frequency m // 2 passes, m // 2 + 1 does not."""
    layer = plain_layer(n_modes, channels=1, extent=extent)
    points = mesh(grid, extent)
    for n, m, L, x in zip(grid, n_modes, extent, points, strict=True):
        if 2 * (m // 2 + 1) < n:
            kept = torch.cos(2 * pi * (m // 2) * x / L)[None, None]
            cut = torch.cos(2 * pi * (m // 2 + 1) * x / L)[None, None]
            y = layer(kept + cut, diffusion_time=uniform(1e-300, 1))
            assert_close(y, kept)


@GRIDS
def test_semigroup(grid: tuple, n_modes: tuple, extent: tuple) -> None:
    layer = plain_layer(n_modes, extent=extent)
    x = Problem(grid=grid, n_modes=n_modes).tensors()["x"]
    s = torch.tensor([1e-3, 4e-3], dtype=FLOAT64)
    t = torch.tensor([5e-3, 1e-4], dtype=FLOAT64)
    twice = layer(layer(x, diffusion_time=t), diffusion_time=s)
    assert_close(twice, layer(x, diffusion_time=s + t))
    assert relative_error(twice, layer(x, diffusion_time=t)) > 1e-4


@GRIDS
@pytest.mark.parametrize("change", [0, 3, -3], ids=["same", "finer", "coarser"])
def test_mean_is_preserved(
    grid: tuple, n_modes: tuple, extent: tuple, change: int
) -> None:
    layer = plain_layer(n_modes, extent=extent)
    x = Problem(grid=grid, n_modes=n_modes).tensors()["x"]
    axes = tuple(range(2, x.ndim))
    y = layer(x, output_shape=[n + change for n in grid])
    assert_close(y.mean(axes), x.mean(axes))


@GRIDS
def test_diffusion_is_linear_symmetric_and_contracting(
    grid: tuple, n_modes: tuple, extent: tuple
) -> None:
    layer = plain_layer(n_modes, extent=extent)
    a = Problem(grid=grid, n_modes=n_modes).tensors()["x"]
    b = Problem(grid=grid, n_modes=n_modes, seed=1).tensors()["x"]
    assert_close(layer(2 * a - b), 2 * layer(a) - layer(b))
    assert_close((layer(a) * b).sum(), (a * layer(b)).sum())
    assert layer(a).norm() < a.norm()
    assert (layer(a) * a).sum() > 0


@pytest.mark.parametrize("k", [(1, 0, 0), (2, 1, 0), (1, 2, 2)], ids=str)
def test_plane_waves_decay_at_the_analytic_rate(k: tuple[int, ...]) -> None:
    extent, time = (1.0, 2.0, 0.5), 2e-3
    layer = plain_layer((4, 4, 4), channels=1, extent=extent)
    angle = 0.3 + sum(
        2 * pi * kj * x / L
        for kj, x, L in zip(k, mesh((6, 7, 8), extent), extent, strict=True)
    )
    rate = sum((2 * pi * kj / L) ** 2 for kj, L in zip(k, extent, strict=True))
    wave = torch.cos(angle)[None, None]
    actual = layer(wave, diffusion_time=uniform(time, 1))
    assert_close(actual, wave * torch.exp(torch.tensor(-rate * time, dtype=FLOAT64)))


@pytest.mark.parametrize(
    ("grid", "extent"),
    [((64,), (1.0,)), ((48, 50), (1.0, 1.2))],
    ids=["1d", "2d-extents"],
)
def test_heat_kernel_becomes_a_wider_heat_kernel(grid: tuple, extent: tuple) -> None:
    """Gaussians, not Fourier series: an answer from outside of the spectral world."""
    layer = plain_layer(grid, channels=1, extent=extent)
    x = heat_kernel(grid, extent, 2e-3)
    y = layer(x, diffusion_time=uniform(5e-3, 1))
    assert_close(y, heat_kernel(grid, extent, 7e-3))


def test_gradient_features_of_plane_waves() -> None:
    """Derivatives by hand: v_0 = e_0 sin(a) cos(b), v_1 = e_1 cos(b)."""
    extent, times = (2.0, 1.0), torch.tensor([1e-3, 2e-3], dtype=FLOAT64)
    layer = DiffusionSpectralConv(
        2, 4, (4, 4), extent=extent, bias=False, feature_grid="output"
    ).double()
    layer.diffusion_time = times
    weight = torch.tensor([[0.03, -0.05], [0.02, 0.04]], dtype=FLOAT64)
    with torch.no_grad():
        layer.gradient_weight.copy_(weight)
        layer.mix_weight.copy_(torch.eye(4))
    x, y = mesh((7, 8), extent)
    p, q = 2 * pi / 2.0, 2 * pi / 1.0
    a, b = p * x, q * y
    input = torch.stack([a.sin() * b.cos(), b.cos()])[None]

    e0, e1 = torch.exp(-times * torch.tensor([p**2 + q**2, q**2], dtype=FLOAT64))
    v = torch.stack([e0 * a.sin() * b.cos(), e1 * b.cos()])
    dx = torch.stack([e0 * p * a.cos() * b.cos(), torch.zeros_like(a)])
    dy = torch.stack([-e0 * q * a.sin() * b.sin(), -e1 * q * b.sin()])
    g = [
        torch.tanh(sum(weight[c, r] * (dx[c] * dx[r] + dy[c] * dy[r]) for r in (0, 1)))
        for c in (0, 1)
    ]
    assert_close(layer(input), torch.cat([v, torch.stack(g)])[None])


@pytest.mark.parametrize("output", [6, 9], ids=["same", "finer"])
def test_nyquist_wave_is_a_cosine_without_derivative(output: int) -> None:
    """(-1)^i is cos(6 pi x) on six points; its slope cannot be seen there."""
    layer = DiffusionSpectralConv(1, 2, (6,), bias=False).double()
    with torch.no_grad():
        layer.gradient_weight.fill_(1.0)
        layer.mix_weight.copy_(torch.eye(2))
    x = torch.tensor([1.0, -1.0] * 3, dtype=FLOAT64)[None, None]
    (points,) = mesh((output,), (1.0,))
    y = layer(x, output_shape=(output,), diffusion_time=uniform(1e-3, 1))
    decay = torch.exp(torch.tensor(-1e-3 * (6 * pi) ** 2, dtype=FLOAT64))
    assert_close(y[:, :1], decay * torch.cos(6 * pi * points)[None, None])
    assert y[:, 1:].abs().max() < 1e-20


def test_constant_fields_have_no_gradient_features() -> None:
    problem = Problem(grid=(6, 7), n_modes=(4, 4))
    layer = problem.layer()
    constants = torch.tensor([2.0, -3.0], dtype=FLOAT64)
    c = problem.in_channels
    y = layer(constants[None, :, None, None].expand(1, c, 6, 7))
    expected = layer.mix_weight[:, :c] @ constants + layer.bias
    assert_close(y, expected[None, :, None, None].expand_as(y))


# --- symmetries -----------------------------------------------------------------------


SYMMETRY_PROBLEMS = over(
    {
        "1d-even": Problem(grid=(8,), n_modes=(4,)),
        "1d-odd": Problem(grid=(7,), n_modes=(7,)),
        "1d-nyquist": Problem(grid=(8,), n_modes=(8,)),
        "2d": Problem(grid=(6, 9), n_modes=(4, 7), extent=(1.0, 0.5)),
        "2d-time-per-item": Problem(grid=(6, 5), n_modes=(6, 4), batch_times=True),
        "3d": Problem(grid=(5, 4, 6), n_modes=(4, 4, 3), extent=(1.0, 2.0, 0.7)),
    }
)


def assert_equivariant(problem: Problem, act: Callable[[Tensor], Tensor]) -> None:
    """Check that the layer commutes with ``act``, and that ``act`` does something."""
    tensors, layer = problem.tensors(), problem.layer()
    times = tensors["times"] if problem.batch_times else None
    x = tensors["x"]
    y = layer(x, diffusion_time=times)
    assert_close(layer(act(x), diffusion_time=times), act(y))
    assert relative_error(act(y), y) > 1e-2


@SYMMETRY_PROBLEMS
def test_translation_equivariance(problem: Problem) -> None:
    d = len(problem.grid)
    shifts, axes = (1, 3, -2)[:d], tuple(range(2, d + 2))
    assert_equivariant(problem, lambda u: u.roll(shifts, axes))


@SYMMETRY_PROBLEMS
def test_reflection_equivariance(problem: Problem) -> None:
    """x -> -x sends point i to point -i; each axis alone."""
    for axis in range(2, len(problem.grid) + 2):
        assert_equivariant(problem, lambda u, a=axis: u.flip(a).roll(1, a))


@pytest.mark.parametrize("order", [(1, 0), (1, 2, 0), (2, 1, 0), (3, 0, 2, 1)], ids=str)
@pytest.mark.parametrize("resize", [False, True], ids=["same", "resized"])
def test_axes_may_be_permuted(order: tuple[int, ...], resize: bool) -> None:
    d = len(order)
    sizes = {
        "grid": (6, 5, 3, 4),
        "n_modes": (6, 3, 2, 4),
        "extent": (1.0, 2.0, 0.5, 3.0),
    }
    if resize:
        sizes["output_shape"] = (4, 7, 5, 3)
    sizes = {name: value[:d] for name, value in sizes.items()}
    problem = Problem(**sizes)
    moved = replace(
        problem, **{name: tuple(v[j] for j in order) for name, v in sizes.items()}
    )
    axes = (0, 1, *[j + 2 for j in order])
    layer, x = problem.layer(), problem.tensors()["x"]
    moved_layer = moved.layer()
    moved_layer.load_state_dict(layer.state_dict())
    y = layer(x, output_shape=problem.output_shape)
    actual = moved_layer(x.permute(axes), output_shape=moved.output_shape)
    assert_close(actual, y.permute(axes))


@pytest.mark.parametrize(
    ("coarse", "fine", "extent"),
    [
        ((8,), (16,), (1.0,)),
        ((7,), (21,), (2.0,)),
        ((8, 6), (16, 18), (1.0, 0.5)),
        ((6, 5, 5), (12, 5, 10), (1.0, 2.0, 0.7)),
    ],
    ids=["1d-even", "1d-odd", "2d", "3d"],
)
def test_refining_the_grid_changes_nothing(
    coarse: tuple, fine: tuple, extent: tuple
) -> None:
    """Gradient features included: they are evaluated pointwise on the finer grid."""
    limits = [2] * len(coarse)
    problem = Problem(grid=coarse, n_modes=(4,) * len(coarse), extent=extent)
    layer = problem.layer()
    u, u_fine = (band_limited(grid, limits, extent) for grid in (coarse, fine))
    y, y_fine = layer(u), layer(u_fine)
    steps = [f // c for f, c in zip(fine, coarse, strict=True)]
    common = (..., *[slice(None, None, step) for step in steps])
    assert_close(y_fine[common], y)
    assert_close(layer(u, output_shape=fine), y_fine)
    assert_close(layer(u_fine, output_shape=coarse), y)


def test_extent_is_a_unit_of_length() -> None:
    """Lengths times a, times times a^2, gradient weights times a^2: nothing changes."""
    a = 3.0
    problem = Problem(grid=(6, 7), n_modes=(6, 4), extent=(1.0, 2.0))
    layer, x = problem.layer(), problem.tensors()["x"]
    scaled = replace(problem, extent=(a * 1.0, a * 2.0)).layer()
    scaled.load_state_dict(layer.state_dict())
    assert relative_error(scaled(x), layer(x)) > 1e-2
    with torch.no_grad():
        scaled.gradient_weight.mul_(a**2)
    scaled.diffusion_time = a**2 * layer.diffusion_time.detach()
    assert_close(scaled(x), layer(x))


def test_channels_diffuse_separately_and_mix_by_the_weights() -> None:
    """Permuting input channels, with their times and weights, changes nothing."""
    problem = Problem(grid=(6, 7), n_modes=(6, 4), in_channels=4, extent=(1.0, 2.0))
    layer, x = problem.layer(), problem.tensors()["x"]
    order = torch.tensor([2, 0, 3, 1])
    permuted = replace(problem, seed=1).layer()
    permuted.diffusion_time = layer.diffusion_time.detach()[order]
    with torch.no_grad():
        permuted.gradient_weight.copy_(layer.gradient_weight[order][:, order])
        permuted.mix_weight.copy_(layer.mix_weight[:, torch.cat([order, order + 4])])
        permuted.bias.copy_(layer.bias)
    assert_close(permuted(x[:, order]), layer(x))


def test_default_options_are_those_of_the_paper() -> None:
    """Extent one: exp(-4 pi^2 k^2 t), times log-spaced from 1e-4 to 1e-1."""
    layer = DiffusionSpectralConv(4, 4, (6,)).double()
    times = layer.diffusion_time.detach()
    expected = torch.logspace(-4, -1, 4, dtype=FLOAT64)
    assert_close(times, expected, 1e-6)
    with torch.no_grad():
        layer.mix_weight.copy_(torch.eye(8)[:4])
        layer.bias.zero_()
    (x,) = mesh((8,), (1.0,))
    wave = torch.sin(2 * pi * 2 * x).expand(1, 4, 8)
    decay = torch.exp(-4 * pi**2 * 4 * times)
    assert_close(layer(wave), decay[None, :, None] * wave)
