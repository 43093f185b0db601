"""Whatever the sizes: the layer equals the oracle, and finite numbers stay finite."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.problems import Problem, assert_same, solve_by_layer, solve_by_oracle

BOUNDED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw any layer of dimension 1 to 3 with an input and an output grid."""
    d = draw(st.integers(1, 3))

    def axes(values: st.SearchStrategy) -> st.SearchStrategy:
        return st.tuples(*[values] * d)

    sizes, lengths = st.integers(1, 12), st.floats(0.05, 20.0)
    return Problem(
        grid=draw(axes(sizes)),
        n_modes=draw(axes(st.integers(1, 14))),
        output_shape=draw(st.none() | axes(sizes)),
        extent=draw(lengths | axes(lengths)),
        in_channels=draw(st.integers(1, 4)),
        out_channels=draw(st.integers(1, 4)),
        batch=draw(st.integers(1, 3)),
        gradient_features=draw(st.booleans()),
        bias=draw(st.booleans()),
        kernels=draw(st.integers(1, 3)),
        drift=draw(st.booleans()),
        feature_grid=draw(st.sampled_from(["modes", "output"])),
        batch_times=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@BOUNDED
@given(problem=problems(), method=st.sampled_from(["auto", "dense", "fft"]))
def test_values_and_gradients_agree_with_oracle(problem: Problem, method: str) -> None:
    actual = solve_by_layer(problem, axis_method=method)
    # Looser than for chosen problems: a gradient may happen to be a sum that cancels.
    assert_same(actual, solve_by_oracle(problem), tolerance=1e-10)


@pytest.mark.parametrize(
    ("dtype", "decades"), [(torch.float64, 100), (torch.float32, 12)], ids=str
)
@BOUNDED
@given(problem=problems(), data=st.data())
def test_finite_numbers_stay_finite(
    problem: Problem, data: st.DataObject, dtype: torch.dtype, decades: int
) -> None:
    """Fields and times of any size that leaves room for the square of a gradient."""
    exponents = st.integers(-decades, decades)
    field = 10.0 ** data.draw(exponents, label="size of the field")
    times = 10.0 ** data.draw(exponents, label="size of the times")
    steep = 10.0 ** data.draw(st.integers(-3, 3), label="size of the weights")
    tensors = problem.tensors(dtype)
    layer = problem.layer(dtype)
    if layer.gradient_weight is not None:
        with torch.no_grad():
            layer.gradient_weight.mul_(steep)
    x = (tensors["x"] * field).requires_grad_()
    tau = (tensors["times"] * times).requires_grad_()
    y = layer(x, output_shape=problem.output_shape, diffusion_time=tau)
    assert y.isfinite().all()
    leaves = [x, tau, *(p for p in layer.parameters() if p is not layer.raw_time)]
    for gradient in torch.autograd.grad(y, leaves, torch.ones_like(y)):
        assert gradient.isfinite().all()
