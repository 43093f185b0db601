"""Examples run from top to bottom, with smaller numbers, on installed packages."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="examples need it")

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Packages of ``pip install 'dinozaur-no[plots]'``.
INSTALLED = {
    *("torch", "neuralop", "dinozaur_no", "numpy", "scipy", "matplotlib"),
    "mpl_toolkits",  # a part of matplotlib
}
#: New values of the constants of each script.
SMALL = {
    "plot_ahmed_body": {
        "N_TRAIN, N_TEST, N_POINTS": "2, 2, 60",
        "N_GRID, N_EPOCHS, RATE": "8, 1, 5e-3",
        "N_SAMPLES": "2",
    },
    "plot_bayesian_operator": {
        "N_TRAIN, N_TEST, N_EPOCHS, RATE": "16, 2, 1, 3e-3",
        "N_SAMPLES": "4",
    },
    "plot_car_pressure": {
        "N_TRAIN, N_TEST, N_POINTS": "2, 1, 60",
        "N_GRID, N_EPOCHS, RATE": "8, 1, 5e-3",
    },
    "plot_compare_uncertainty": {
        "N_TRAIN, N_CALIBRATION, N_TEST": "16, 12, 2",
        "N_EPOCHS, RATE": "1, 3e-3",
    },
    "plot_conditional": {"N_TRAIN, N_TEST, N_EPOCHS, RATE": "4, 2, 1, 5e-3"},
    "plot_deploy": {"N_LAYERS, BATCH": "1, 2", "BACKEND": '"aot_eager"'},
    "plot_drag": {
        "N_TRAIN, N_HELD_OUT, N_TEST, N_POINTS": "2, 8, 2, 60",
        "N_GRID, N_EPOCHS, RATE": "8, 1, 5e-3",
    },
    "plot_navier_stokes": {
        "N_TRAIN, N_TEST, N_EPOCHS, RATE": "2, 1, 1, 5e-3",
        "N_BAYESIAN, N_SAMPLES": "1, 2",
    },
    "plot_swap_convolution": {"N_TRAIN, N_TEST, N_EPOCHS, RATE": "16, 2, 1, 4e-3"},
    "plot_transfer": {
        "N_FLAT, N_SOLID, N_TEST, N_POINTS": "8, 2, 2, 6",
        "N_EPOCHS_FLAT, N_EPOCHS_SOLID": "1, 2",
    },
}
FIGURES = {
    "plot_ahmed_body": 2,
    "plot_bayesian_operator": 4,
    "plot_car_pressure": 1,
    "plot_compare_uncertainty": 2,
    "plot_conditional": 1,
    "plot_deploy": 0,
    "plot_drag": 1,
    "plot_navier_stokes": 4,
    "plot_swap_convolution": 1,
    "plot_transfer": 2,
}


def text_of(name):
    return (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")


def with_constants(text, constants):
    """Replace the values of some constants, each set once, in one line."""
    for names, value in constants.items():
        line = re.compile(rf"^{re.escape(names)} = .+$", re.MULTILINE)
        text, count = line.subn(f"{names} = {value}", text)
        assert count == 1, f"{names} is set {count} times instead of once"
    return text


def imported(text):
    """Return the packages that a script imports, wherever it does so."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import"
            yield node.module.split(".")[0]


@cache
def functions(name):
    """Return the functions of a script, without running the rest of it."""
    tree = ast.parse(text_of(name))
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    namespace = {}
    exec(compile(tree, name, "exec"), namespace)
    return namespace


def source_of(name, function):
    text = text_of(name)
    (node,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    return ast.get_source_segment(text, node)


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SMALL) == set(FIGURES)


def test_a_constant_that_is_not_there_is_noticed():
    with pytest.raises(AssertionError, match="N_EPOCHS is set 0 times"):
        with_constants("N_TRAIN, N_EPOCHS = 2, 3\n", {"N_EPOCHS": "1"})


@pytest.mark.parametrize("name", sorted(SMALL))
def test_only_installed_packages_are_imported(name):
    text = text_of(name)
    assert set(imported(text)) - set(sys.stdlib_module_names) <= INSTALLED
    for word in ("sys.path", "benchmarks", "weights_only=False"):
        assert word not in text


@pytest.fixture
def pyplot():
    """Matplotlib without a display, and without figures before and after."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    yield plt
    plt.close("all")


@pytest.mark.parametrize("name", sorted(SMALL))
def test_example(name, pyplot, tmp_path, monkeypatch):
    if name == "plot_deploy":
        for package in ("onnxruntime", "onnxscript"):
            pytest.importorskip(package, reason="the example needs it")
    monkeypatch.setattr(pyplot, "show", lambda: None)
    monkeypatch.chdir(tmp_path)
    script = with_constants(text_of(name), SMALL[name])
    try:
        exec(compile(script, name, "exec"), {"__name__": "__main__"})
    finally:
        torch.compiler.reset()
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    assert len(figures) == FIGURES[name]
    for figure in figures:
        figure.canvas.draw()


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (
            "darcy_flow",
            ("swap_convolution", "bayesian_operator", "compare_uncertainty"),
        ),
        ("sphere", ("car_pressure", "ahmed_body", "drag")),
        ("potential_flow", ("car_pressure", "ahmed_body", "drag")),
    ],
)
def test_a_solver_is_the_same_wherever_it_stands(function, names):
    assert len({source_of(f"plot_{name}", function) for name in names}) == 1


def test_darcy_flow_solves_the_equation():
    """Check the balance of every inner node, written down without matrices."""
    n = 21
    a, u = functions("plot_swap_convolution")["darcy_flow"](3, n)
    assert set(np.unique(a)) == {3.0, 12.0}
    centre = np.s_[1:-1, 1:-1]
    sides = np.s_[:-2, 1:-1], np.s_[2:, 1:-1], np.s_[1:-1, :-2], np.s_[1:-1, 2:]
    outflow = sum((a[centre] + a[s]) / 2 * (u[centre] - u[s]) for s in sides)
    np.testing.assert_allclose(outflow * (n - 1) ** 2, 1, rtol=1e-9)
    for edge in (u[0], u[-1], u[:, 0], u[:, -1]):
        assert not edge.any()


@pytest.mark.parametrize("d", [2, 3])
def test_darcy_flow_of_any_dimension_solves_the_equation(d):
    n = 9
    a, u = functions("plot_transfer")["darcy_flow"](3, n, d)
    assert a.shape == u.shape == (n,) * d
    assert set(np.unique(a)) == {3.0, 12.0}
    outflow = np.zeros((n - 2,) * d)
    for axis in range(d):
        for side in (slice(-2), slice(2, None)):
            place = tuple(side if j == axis else slice(1, -1) for j in range(d))
            centre = (slice(1, -1),) * d
            outflow += (a[centre] + a[place]) / 2 * (u[centre] - u[place])
        assert not np.take(u, [0, -1], axis).any()
    np.testing.assert_allclose(outflow * (n - 1) ** 2, 1, rtol=1e-8)


def test_potential_flow_around_a_sphere():
    """Far above the ground the pressure coefficient is 1 - 9/4 sin^2."""
    example = functions("plot_car_pressure")
    points, triangles = example["sphere"](400)
    above = points + np.array([0, 0, 50])
    normals, pressure = example["potential_flow"](above, triangles)
    np.testing.assert_allclose(normals, points, atol=0.05)
    exact = 1 - 9 / 4 * (1 - points[:, 0] ** 2)
    np.testing.assert_allclose(pressure, exact, atol=0.1)


def test_potential_flow_along_the_ground():
    """A body near the ground feels the flow of two mirrored bodies."""
    example = functions("plot_car_pressure")
    points, triangles = example["sphere"](400)
    pressures = [
        example["potential_flow"](points + np.array([0, 0, z]), triangles)[1]
        for z in (1.3, 50)
    ]
    # The air is faster in the gap below the body, so the pressure falls there.
    lowest = points[:, 2].argmin()
    assert pressures[0][lowest] < pressures[1][lowest] - 0.3


def test_navier_stokes_of_a_single_wave():
    """A plane wave does not transport itself: viscosity and force are left."""
    solve = functions("plot_navier_stokes")["navier_stokes"]
    x = torch.arange(16) / 16
    wave = torch.sin(2 * torch.pi * (x[:, None] + 2 * x))[None]
    rate = 0.01 * 4 * torch.pi**2 * 5
    times = 0.5 * torch.arange(1, 4)
    found = solve(wave, 0.3 * wave[0], 0.01, n_snapshots=3, interval=0.5)
    size = torch.exp(-rate * times) * (1 - 0.3 / rate) + 0.3 / rate
    torch.testing.assert_close(found, wave[..., None] * size, atol=1e-3, rtol=0)


def test_navier_stokes_of_two_waves():
    """For w = cos 2 pi x + cos 4 pi y, dw/dt = 1.5 sin 2 pi x sin 4 pi y at first."""
    solve = functions("plot_navier_stokes")["navier_stokes"]
    x = 2 * torch.pi * torch.arange(16) / 16
    w = (x.cos()[:, None] + (2 * x).cos())[None]
    later = solve(w, torch.zeros(16, 16), 0.0, n_snapshots=1, interval=0.01)[..., 0]
    exact = 1.5 * x.sin()[:, None] * (2 * x).sin()
    torch.testing.assert_close((later - w)[0] / 0.01, exact, atol=0.02, rtol=0)


def test_burgers_against_an_exact_solution():
    """Cole-Hopf: u = -2 v f_x / f, where f solves the heat equation."""
    solve = functions("plot_conditional")["burgers"]
    x = 2 * torch.pi * torch.arange(256) / 256
    viscosity = torch.tensor([0.01, 0.05])

    def exact(time):
        wave = 0.9 * torch.exp(-viscosity * 4 * torch.pi**2 * time)[:, None]
        slope = 2 * torch.pi * wave * x.sin()
        return 2 * viscosity[:, None] * slope / (1 + wave * x.cos())

    found = solve(exact(0.0), viscosity, time=0.5)
    torch.testing.assert_close(found, exact(0.5), atol=1e-5, rtol=0)
    assert (exact(0.5) - exact(0.0)).abs().max() > 0.1


def test_random_vorticity_is_a_smooth_field_of_zero_mean():
    torch.manual_seed(0)
    fields = functions("plot_navier_stokes")["random_vorticity"](8, 32)
    assert fields.mean((1, 2)).abs().max() < 1e-5
    steps = fields.diff(dim=1).std() / fields.std()
    assert steps < 0.5  # sqrt(2) for noise without correlation
