"""
Pressure on Ahmed bodies with error bars
========================================

This example predicts the pressure on Ahmed-like bodies at different wind speeds, with
error bars. The model is neuraloperator's `GINO` with `BayesianDiffusionConv` in its
Fourier part. At the end, one body is placed in other winds, and the predictions are
compared with Bernoulli's law.
"""

# %%
# Imports
# -------

import matplotlib.pyplot as plt
import numpy as np
import torch
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from neuralop.models import GINO
from scipy.spatial import ConvexHull

from dinozaur_no import (
    BayesianDiffusionConv,
    Predictive,
    VariationalOperator,
    accelerate_gno,
    parameter_groups,
)

torch.manual_seed(0)

N_TRAIN, N_TEST, N_POINTS = 48, 8, 800
N_GRID, N_EPOCHS, RATE = 14, 20, 5e-3
N_SAMPLES = 20

# %%
# Flow around a body
# ------------------
# The air flows without friction along x, above the ground z = 0. Each point of the
# surface has a source a little below it, and a mirror image of that source below the
# ground. The strengths of the sources follow from one condition per point: no air
# passes through the surface. Bernoulli's law gives the pressure coefficient.
#
# Such a potential flow never separates from the body. It has no wake and no drag, so
# these pressures are a cheap stand-in for those of a real body.


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
# Random bodies and winds
# -----------------------
# An Ahmed body is a box with a round front and a slanted rear, a common test case for
# the flow around cars. Here all edges are round. Six random numbers describe the body
# and the wind: three lengths, the clearance above the ground, the angle of the slant
# and the speed. The pressure is the pressure coefficient times the dynamic pressure of
# the wind.

SLOWEST, FASTEST, DENSITY = 10.0, 70.0, 1.2  # m/s, m/s, kg/m^3
ball, triangles = sphere(N_POINTS)


def ahmed_body(rng):
    """Return the points of a random body, in metres."""
    size = rng.uniform([0.8, 0.3, 0.28], [1.2, 0.45, 0.36])
    slant, clearance = rng.uniform([0, 0.04], [30, 0.08])
    x, y, z = (size / 2 * ball / (ball**4).sum(1, keepdims=True) ** 0.25).T
    behind = 0.03 * np.logaddexp(0, (x - size[0] / 2 + 0.2) / 0.03)
    lower = 1 - np.tan(np.radians(slant)) * behind / size[2]
    return np.stack([x, y, (z + size[2] / 2) * lower + clearance], 1)


# %%
# The inputs of the model are the points, scaled into the unit cube, and five numbers at
# each of them: the normal, the speed (0 for the slowest wind and 1 for the fastest) and
# its square.

LOW, HIGH = np.array([-0.6, -0.225, 0.0]), np.array([0.6, 0.225, 0.44])


def make_item(seed):
    """Return one body in one wind as tensors, with a batch axis of size one."""
    rng = np.random.default_rng(seed)
    points, speed = ahmed_body(rng), rng.uniform(SLOWEST, FASTEST)
    normals, coefficient = potential_flow(points, triangles)
    pressure = coefficient * DENSITY / 2 * speed**2
    arrays = (points - LOW) / (HIGH - LOW), normals, pressure[:, None]
    return [*(torch.from_numpy(array).float()[None] for array in arrays), speed]


axis = torch.linspace(0, 1, N_GRID)
grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)[None]


def arguments(points, normals, speed):
    """Return the arguments of GINO for a body in a wind."""
    relative = (speed - SLOWEST) / (FASTEST - SLOWEST)
    wind = torch.tensor([relative, relative**2]).expand(1, points.shape[1], 2)
    return {
        "input_geom": points,
        "latent_queries": grid,
        "output_queries": points,
        "x": torch.cat([normals, wind], -1),
    }


items = [make_item(seed) for seed in range(N_TRAIN + N_TEST)]
train, test = items[:N_TRAIN], items[N_TRAIN:]
scale = torch.cat([pressure for _, _, pressure, _ in train]).std()
print(f"{N_TRAIN} bodies for training, {N_TEST} for testing, {N_POINTS} points each")
print(f"standard deviation of the pressure {scale:.0f} Pa")

# %%
# The model
# ---------
# Three changes are made: the convolution, the graph layers, and a wrapper around the
# whole model. The wrapper adds the observation noise and the loss, and draws samples.

gino = GINO(
    in_channels=5,
    out_channels=1,
    in_gno_radius=0.12,
    out_gno_radius=0.12,
    gno_embed_channels=8,
    in_gno_channel_mlp_hidden_layers=[32, 32],
    out_gno_channel_mlp_hidden_layers=[32, 32],
    fno_in_channels=5,
    fno_n_modes=(8, 8, 8),
    fno_hidden_channels=24,
    fno_n_layers=2,
    fno_conv_module=BayesianDiffusionConv,
    gno_use_open3d=False,
    gno_use_torch_scatter=False,
)
accelerate_gno(gino)
operator = VariationalOperator(gino)

# %%
# Training
# --------
# The loss is the negative evidence lower bound, for pressures scaled to unit variance.
# At the end the noise is fitted once more, because the running average of the training
# lags behind while the fit still improves.

batches = [
    {**arguments(points, normals, speed), "y": pressure / scale}
    for points, normals, pressure, speed in train
]
optimizer = torch.optim.AdamW(parameter_groups(operator, lr=RATE))
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer,
    max_lr=[group["lr"] for group in optimizer.param_groups],
    total_steps=N_EPOCHS * N_TRAIN,
)
for epoch in range(N_EPOCHS):
    for k in torch.randperm(N_TRAIN).tolist():
        inputs = dict(batches[k])
        target = inputs.pop("y")
        optimizer.zero_grad()
        operator.loss(operator(**inputs), target, num_data=N_TRAIN).backward()
        optimizer.step()
        scheduler.step()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1:2d}: noise {operator.noise_variance.sqrt():.3f}")
operator.fit_noise(batches, residuals_of="mean", n_samples=10)
print(f"fitted noise {operator.noise_variance.sqrt():.3f}")

# %%
# Bodies that the model has not seen
# ----------------------------------
# Pressures grow with the speed, and so do errors in pascal. The noise is one number for
# all bodies: compare it with the error in slow and in fast winds. The spread of the
# samples grows with the speed too, but on its own it is much smaller than the error.
# The settings were taken over from the example of cars.


def predict(points, normals, speed):
    """Return the predictive distribution of the pressure in pascal."""
    found = operator.predict(**arguments(points, normals, speed), n_samples=N_SAMPLES)
    return Predictive.from_samples(
        scale * found.samples, scale**2 * found.aleatoric_variance
    )


test.sort(key=lambda item: item[-1])
predictions = [predict(points, normals, speed) for points, normals, _, speed in test]
print("speed   relative L2   RMS error   std of samples   noise   inside 90 %")
for (_, _, pressure, speed), found in zip(test, predictions, strict=True):
    error = found.mean - pressure
    low, high = found.interval(0.9)
    inside = ((low <= pressure) & (pressure <= high)).float().mean()
    print(
        f"{speed:5.1f} {error.norm() / pressure.norm():13.3f} "
        f"{error.square().mean().sqrt():11.1f} "
        f"{found.epistemic_variance.mean().sqrt():16.1f} "
        f"{found.aleatoric_variance.mean().sqrt():7.1f} {inside:13.3f}"
    )

# %%
# The body in the fastest wind, seen from the front left. Error and standard deviation
# have colour scales of their own.

points, normals, pressure, speed = test[-1]
vertices = LOW + (HIGH - LOW) * points[0].numpy()
truth, mean, spread = (
    field[0, :, 0].numpy()
    for field in (pressure, predictions[-1].mean, predictions[-1].epistemic_std)
)
error = np.abs(mean - truth)
panels = {
    "potential flow": (truth, "RdYlBu_r", truth.min(), truth.max()),
    "mean prediction": (mean, "RdYlBu_r", truth.min(), truth.max()),
    "absolute error": (error, "magma_r", 0, error.max()),
    "standard deviation of the samples": (spread, "magma_r", 0, spread.max()),
}
figure = plt.figure(figsize=(9, 6), layout="constrained")
for number, (title, (field, cmap, low, high)) in enumerate(panels.items(), 1):
    axes = figure.add_subplot(2, 2, number, projection="3d")
    colours = plt.cm.ScalarMappable(plt.Normalize(low, high), cmap)
    faces = colours.to_rgba(field[triangles].mean(1))
    surface = Poly3DCollection(vertices[triangles], facecolors=faces, edgecolors=faces)
    surface.set(linewidths=0.2, clip_on=False)
    axes.add_collection3d(surface)
    axes.auto_scale_xyz(*vertices.T)
    axes.set_box_aspect(np.ptp(vertices, axis=0), zoom=1.7)
    axes.view_init(elev=22, azim=-125)
    axes.set_axis_off()
    axes.set_title(title, y=0.95)
    figure.colorbar(
        colours, ax=axes, orientation="horizontal", shrink=0.6, label="pressure [Pa]"
    )
plt.show()

# %%
# The same body in other winds
# ----------------------------
# Only the speed changes. The right answer is known without another solution: by
# Bernoulli's law the pressure of this flow grows with the square of the speed. The
# figure shows the points with the highest and the lowest pressure. Dark bands are 90 %
# intervals of the samples alone, light bands include the noise.

speeds = np.linspace(SLOWEST, FASTEST, 7)
winds = [predict(points, normals, new) for new in speeds.tolist()]
figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for label, vertex, colour in (
    ("highest", truth.argmax(), "tab:orange"),
    ("lowest", truth.argmin(), "tab:purple"),
):
    at = [found[0, vertex, 0] for found in winds]
    for noise, alpha in ((True, 0.15), (False, 0.45)):
        ends = np.array([found.interval(0.9, noise) for found in at]).T
        axes.fill_between(speeds, *ends, color=colour, alpha=alpha, linewidth=0)
    axes.plot(speeds, [found.mean for found in at], color=colour, label=label)
    axes.plot(speeds, truth[vertex] * (speeds / speed) ** 2, "--", color="black")
axes.plot([], [], "--", color="black", label="Bernoulli's law")
axes.set(xlabel="speed of the wind [m/s]", ylabel="pressure [Pa]")
axes.legend()
plt.show()
