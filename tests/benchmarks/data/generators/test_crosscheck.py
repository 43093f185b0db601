"""Solvers of other people give the same fields (extra ``crosscheck``).

Both solve the same equations by another method: finite elements instead of finite
differences, and implicit viscosity instead of an integrating factor.
"""

import numpy as np
import pytest
import torch

from benchmarks.data.generators.darcy import permeability, solve_darcy
from benchmarks.data.generators.vorticity import solve_navier_stokes

MISSING = "needs the extra crosscheck"


def bilinear_elements(coeff):
    """Solve for the pressure on the nodes with scikit-fem."""
    skfem = pytest.importorskip("skfem", reason=MISSING)
    helpers = pytest.importorskip("skfem.helpers")
    nodes = np.linspace(0, 1, len(coeff))
    mesh = skfem.MeshQuad.init_tensor(nodes, nodes)
    basis = skfem.Basis(mesh, skfem.ElementQuad1())
    place = tuple(np.rint(mesh.p * (len(coeff) - 1)).astype(int))
    a = basis.interpolate(coeff[place])

    @skfem.BilinearForm
    def stiffness(u, v, w):
        return w["a"] * helpers.dot(helpers.grad(u), helpers.grad(v))

    @skfem.LinearForm
    def load(v, _):
        return v

    system = skfem.condense(
        stiffness.assemble(basis, a=a), load.assemble(basis), D=mesh.boundary_nodes()
    )
    pressure = np.zeros(coeff.shape)
    pressure[place] = skfem.solve(*system)
    return pressure


@pytest.mark.parametrize(
    ("kind", "size", "tolerance"),
    [("smooth", 33, 2e-3), ("smooth", 65, 5e-4), ("two values", 121, 2e-3)],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_darcy_flow_agrees_with_scikit_fem(kind, size, tolerance):
    """Both are of second order: half the spacing, a quarter of the difference."""
    x = np.linspace(0, 1, size)
    coeff = 2 + np.sin(5 * x[:, None]) * np.cos(3 * x)
    if kind == "two values":
        coeff = permeability(0, size)
    expected = bilinear_elements(coeff)
    difference = np.linalg.norm(solve_darcy(coeff) - expected)
    relative = difference / np.linalg.norm(expected)
    print(f"relative difference {relative:.2e}")
    assert relative < tolerance


@pytest.mark.parametrize(("steps", "tolerance"), [(250, 1.5e-7), (1000, 1e-8)])
@pytest.mark.filterwarnings("ignore")
def test_vorticity_agrees_with_jax_cfd(steps, tolerance):
    """The difference shrinks with the square of jax-cfd's time step."""
    jax = pytest.importorskip("jax", reason=MISSING)
    pytest.importorskip("jax_cfd", reason=MISSING)
    from jax_cfd import base, spectral

    size, viscosity = 64, 5e-3
    rng = np.random.default_rng(0)
    modes = np.zeros((size, size // 2 + 1), complex)
    modes[:4, :4] = rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4))
    modes[0, 0] = 0
    start = np.fft.irfft2(modes, (size, size), norm="forward")
    ours = solve_navier_stokes(
        torch.from_numpy(start)[None],
        viscosity=viscosity,
        forcing=0.0,
        records=1,
        interval=0.5,
        dt=5e-4,
    )[0, ..., 0].numpy()

    jax.config.update("jax_enable_x64", True)
    grid = base.grids.Grid((size, size), domain=((0, 1), (0, 1)))
    equation = spectral.equations.NavierStokes2D(viscosity, grid, smooth=True)
    step = spectral.time_stepping.crank_nicolson_rk4(equation, 0.5 / steps)
    advance = jax.jit(base.funcutils.repeated(step, steps))
    theirs = np.asarray(jax.numpy.fft.irfftn(advance(jax.numpy.fft.rfftn(start))))
    moved = np.linalg.norm(theirs - start) / np.linalg.norm(start)
    relative = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
    print(f"relative difference {relative:.2e}, change {moved:.2f}")
    assert moved > 0.1
    assert relative < tolerance
