"""
Drag of a body, with an interval that holds
===========================================

An engineer wants a force rather than the pressure at one point. This example predicts
the pressure on car-like bodies and computes drag and lift from it, each with a 90 %
interval. If errors are assumed to be independent from point to point, they cancel in
the sum over the surface, and the intervals are far too narrow. `CorrelatedNoise` models
errors as smooth fields.
"""

# %%
# Imports
# -------

import matplotlib.pyplot as plt
import numpy as np
import torch
from neuralop.models import GINO
from scipy.spatial import ConvexHull

from dinozaur_no import (
    CorrelatedNoise,
    Deterministic,
    DiffusionSpectralConv,
    accelerate_gno,
    parameter_groups,
    surface_force,
)

torch.manual_seed(0)

N_TRAIN, N_HELD_OUT, N_TEST, N_POINTS = 48, 32, 24, 500
N_GRID, N_EPOCHS, RATE = 12, 12, 5e-3

# %%
# Flow around a body
# ------------------
# The air flows without friction along x, above the ground z = 0. Each point of the
# surface has a source a little below it, and a mirror image of that source below the
# ground. The strengths of the sources follow from one condition per point: no air
# passes through the surface. Bernoulli's law gives the pressure coefficient.


def sphere(n):
    """Return points on the unit sphere and the triangles between them."""
    i = np.arange(n) + 0.5
    x, angle = 1 - 2 * i / n, np.pi * (1 + 5**0.5) * i
    r = np.sqrt(1 - x**2)
    points = np.stack([x, r * np.cos(angle), r * np.sin(angle)], 1)
    triangles = ConvexHull(points).simplices
    inward = np.linalg.det(points[triangles]) < 0
    triangles[inward] = triangles[inward, ::-1]
    return points, triangles


def potential_flow(points, triangles):
    """Return the normals and the pressure coefficient at all points of a surface."""
    a, b, c = points[triangles].transpose(1, 0, 2)
    normals = np.zeros_like(points)
    for corners in triangles.T:
        np.add.at(normals, corners, np.cross(b - a, c - a) / 6)
    area = np.linalg.norm(normals, axis=1, keepdims=True)
    normals /= area
    sources = points - np.sqrt(area) * normals  # as deep as the points are apart
    velocity = np.zeros((len(points), len(points), 3))
    for place in (sources, sources * [1, 1, -1]):
        offset = points[:, None] - place
        velocity += offset / np.linalg.norm(offset, axis=2, keepdims=True) ** 3
    wind = np.array([1.0, 0.0, 0.0])
    through = np.einsum("ijk,ik->ij", velocity, normals)
    strength = np.linalg.solve(through, -normals @ wind)
    air = wind + np.einsum("ijk,j->ik", velocity, strength)
    return normals, 1 - (air**2).sum(1)


# %%
# Random bodies
# -------------
# A body is a rounded box with a hood and a roof. Such a flow never separates, so that
# the drag of the whole body is zero up to errors of the solver. The drag of its front
# half is not, nor is the lift.

ball, triangles = sphere(N_POINTS)
LOW, HIGH = np.array([-0.6, -0.25, 0.0]), np.array([0.6, 0.25, 0.5])


def make_body(seed):
    """Return points, normals and areas of a random body, and its pressure."""
    rng = np.random.default_rng(seed)
    size = rng.uniform([0.8, 0.3, 0.28], [1.2, 0.5, 0.4])
    hood, start, clearance = rng.uniform([0.45, -0.2, 0.04], [0.8, 0.0, 0.1])
    x, y, z = (size / 2 * ball / (ball**4).sum(1, keepdims=True) ** 0.25).T
    roof = hood + (1 - hood) / (1 + np.exp(-(x / size[0] - start) / 0.04))
    points = np.stack([x, y, (z + size[2] / 2) * roof + clearance], 1)
    normals, pressure = potential_flow(points, triangles)
    a, b, c = points[triangles].transpose(1, 0, 2)
    of_triangles = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 6
    areas = np.zeros(len(points))
    for corners in triangles.T:
        np.add.at(areas, corners, of_triangles)
    arrays = (points - LOW) / (HIGH - LOW), normals, areas, pressure[:, None]
    return [torch.from_numpy(array).float() for array in arrays]


axis = torch.linspace(0, 1, N_GRID)
grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)[None]


def arguments(points, normals):
    """Return the arguments of GINO for a body."""
    return {
        "input_geom": points[None],
        "latent_queries": grid,
        "output_queries": points[None],
        "x": normals[None],
    }


bodies = [make_body(seed) for seed in range(N_TRAIN + N_HELD_OUT + N_TEST)]
train, held_out = bodies[:N_TRAIN], bodies[N_TRAIN : N_TRAIN + N_HELD_OUT]
test = bodies[N_TRAIN + N_HELD_OUT :]

# %%
# A model without any uncertainty
# -------------------------------
# It is trained as usual. The recipe below works for any trained model.

model = GINO(
    in_channels=3,
    out_channels=1,
    in_gno_radius=0.15,
    out_gno_radius=0.15,
    gno_embed_channels=8,
    in_gno_channel_mlp_hidden_layers=[32, 32],
    out_gno_channel_mlp_hidden_layers=[32, 32],
    fno_in_channels=3,
    fno_n_modes=(6, 6, 6),
    fno_hidden_channels=16,
    fno_n_layers=2,
    fno_conv_module=DiffusionSpectralConv,
    gno_use_open3d=False,
    gno_use_torch_scatter=False,
)
accelerate_gno(model)
optimizer = torch.optim.AdamW(parameter_groups(model, lr=RATE))
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer,
    max_lr=[group["lr"] for group in optimizer.param_groups],
    total_steps=N_EPOCHS * N_TRAIN,
)
for epoch in range(N_EPOCHS):
    total = 0.0
    for k in torch.randperm(N_TRAIN).tolist():
        points, normals, _, pressure = train[k]
        optimizer.zero_grad()
        loss = (model(**arguments(points, normals)) - pressure).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() / N_TRAIN
    print(f"epoch {epoch + 1:2d}: mean squared error {total:.4f}")

# %%
# Noise, in three lines
# ---------------------
# Noise is fitted to bodies that the model was not trained on. ``where`` names the
# argument of the model that holds the points of the output.

batches = [
    {**arguments(points, normals), "y": pressure[None]}
    for points, normals, _, pressure in held_out
]
operators = {
    "independent noise": Deterministic(model),
    "correlated noise": Deterministic(
        model, noise=CorrelatedNoise(where="output_queries", n_functions=128)
    ),
}
for operator in operators.values():
    operator.fit_noise(batches)

# %%
# Drag and lift of new bodies
# ---------------------------
# `surface_force` sums pressure times area along a direction: here with the wind for the
# front half, and upwards for the whole body. ``quantity`` applies it to many fields
# with noise. Both noises are equally good at single points.

DIRECTIONS = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
FORCES = "drag of the front half", "lift"


def forces(body):
    """Return a function from pressures to both forces."""
    points, normals, areas, _ = body
    front = (points[:, 0] < 0.5).float()
    drag = surface_force(normals, areas * front, DIRECTIONS[0])
    lift = surface_force(normals, areas, DIRECTIONS[1])
    return lambda fields: torch.cat([drag(fields), lift(fields)], 1)


truth = torch.stack([forces(body)(body[-1][None, None])[0] for body in test])
intervals = {}
for name, operator in operators.items():
    found = [operator.predict(**arguments(*body[:2])) for body in test]
    ends = [
        torch.stack(p.quantity(forces(body)).interval(0.9))
        for p, body in zip(found, test, strict=True)
    ]
    low, high = intervals[name] = torch.stack(ends, 1)
    inside = ((low <= truth) & (truth <= high)).float().mean(0)
    points_inside = np.mean(
        [
            ((p.mean - body[-1]).abs() < 1.645 * p.std).float().mean().item()
            for p, body in zip(found, test, strict=True)
        ]
    )
    print(
        f"{name}: inside the 90 % interval are {100 * points_inside:.0f} % of points,"
    )
    for force, share in zip(FORCES, inside, strict=True):
        print(f"    {100 * share:.0f} % of the test bodies' {force}")

# %%
# Dots are true forces, bars are intervals. Bodies are in the order of their forces.

figure, panels = plt.subplots(2, 2, figsize=(9, 6), sharey="row", layout="constrained")
for row, force in enumerate(FORCES):
    order = truth[:, row].argsort()
    for axes, (name, (low, high)) in zip(panels[row], intervals.items(), strict=True):
        ends = low[order, row].numpy(), high[order, row].numpy()
        axes.vlines(range(len(test)), *ends, color="tab:blue", linewidth=4, alpha=0.5)
        axes.plot(truth[order, row].numpy(), ".", color="black", label="truth")
        inside = (ends[0] <= truth[order, row].numpy()) & (
            truth[order, row].numpy() <= ends[1]
        )
        axes.set_title(f"{name}: {100 * inside.mean():.0f} % inside")
        axes.set(xticks=[], xlabel="test bodies")
    panels[row, 0].set_ylabel(f"{force}\n[dynamic pressure x m$^2$]")
panels[0, 0].legend()
plt.show()
