"""
Pressure on car-like surfaces with FNOGNO
=========================================

From the distance to a car-like body, and its gradient, on a regular grid to a pressure
on the vertices of the surface. The model is neuraloperator's `FNOGNO` with diffusion
layers in its Fourier part, and with fast graph layers, which need neither open3d nor
torch-scatter.

**The pressure is synthetic**: a smooth formula of the direction of the surface, chosen
because it looks plausible. It was not computed by a flow solver.
"""

# %%
# Import what is needed
# ---------------------

import math
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from neuralop.models import FNOGNO
from scipy.spatial import cKDTree

from dinozaur_no import DiffusionSpectralConv, accelerate_gno

torch.manual_seed(0)
rng = np.random.default_rng(0)

# %%
# A family of car-like meshes
# ---------------------------
# A rounded box whose upper half is pressed down before and behind the cabin. Five
# numbers are random: length, width, height, and the place and length of the cabin.

N_ALONG, N_AROUND, N_GRID = 40, 48, 20


def power(value, exponent):
    return np.sign(value) * np.abs(value) ** exponent


def roof(x, cabin, extent):
    """How much of the height is left at a place along the car."""
    return 0.5 + 0.5 * np.exp(-(((x - cabin) / extent) ** 4))


def car():
    """Vertices (along, around, 3), pressure on them, fields on the grid."""
    size = rng.uniform([0.36, 0.16, 0.15], [0.44, 0.22, 0.21])
    cabin, extent = rng.uniform([-0.02, 0.15], [0.12, 0.22])
    # From nose to tail, then once around.
    along = np.linspace(-math.pi / 2, math.pi / 2, N_ALONG)[:, None]
    around = np.linspace(0, 2 * math.pi, N_AROUND)[None, :]
    ring = power(np.cos(along), 0.6)
    box = np.stack(
        [
            power(np.sin(along), 0.7) * np.ones_like(around),
            ring * power(np.cos(around), 0.75),
            ring * power(np.sin(around), 0.75),
        ],
        -1,
    )
    vertices = box * size
    x, z = vertices[..., 0], vertices[..., 2]
    vertices[..., 2] = np.where(z > 0, z * roof(x, cabin, extent), z * 0.8)

    axis = np.linspace(-0.5, 0.5, N_GRID)
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1)
    height = np.where(grid[..., 2] > 0, roof(grid[..., 0], cabin, extent), 0.8)
    p, q, r = (np.abs(grid[..., i]) / size[i] for i in range(3))
    q, r = q ** (2 / 0.75), (r / height) ** (2 / 0.75)
    inside = (q + r) ** (0.75 / 0.6) + p ** (2 / 0.7) < 1
    distance, _ = cKDTree(vertices.reshape(-1, 3)).query(grid)
    distance = np.where(inside, -distance, distance)
    slopes = np.gradient(distance, axis[1] - axis[0])
    return vertices + 0.5, pressure(vertices), np.stack([distance / 0.2, *slopes], -1)


def pressure(vertices):
    """A formula, not a simulation: high at the front, low on top, a wake behind."""
    tangents = [np.gradient(vertices, axis=i) for i in (0, 1)]
    # The first and the last column are the same line on the surface.
    seam = vertices[:, 1] - vertices[:, -2]
    tangents[1][:, 0] = tangents[1][:, -1] = seam / 2
    normal = np.cross(tangents[1], tangents[0])
    normal[0], normal[-1] = (-1, 0, 0), (1, 0, 0)  # nose and tail are single points
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    against_wind = -normal[..., 0]
    flow = 1 - 1.8 * (1 - against_wind**2) - 0.3 * np.maximum(normal[..., 2], 0)
    front = 1 / (1 + np.exp(-6 * (against_wind + 0.15)))
    return front * flow - 0.25 * (1 - front)


def tensors(vertices, values, fields):
    return (
        torch.tensor(vertices.reshape(-1, 3), dtype=torch.float32),
        torch.tensor(values.reshape(-1, 1), dtype=torch.float32),
        torch.tensor(fields, dtype=torch.float32),
    )


cars = [car() for _ in range(34)]
train, test = [tensors(*c) for c in cars[:30]], [tensors(*c) for c in cars[30:]]
axis = torch.linspace(0, 1, N_GRID)
grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
mean = torch.cat([values for _, values, _ in train]).mean()
std = torch.cat([values for _, values, _ in train]).std()

# %%
# The model
# ---------
# `accelerate_gno` exchanges the search and the integral of the graph layer in place.
# Parameters and checkpoints stay what they were.

model = FNOGNO(
    in_channels=4,
    out_channels=1,
    gno_radius=0.09,
    gno_embed_channels=8,
    gno_channel_mlp_hidden_layers=[64, 32],
    gno_use_open3d=False,
    gno_use_torch_scatter=False,
    fno_n_modes=(12, 12, 12),
    fno_hidden_channels=16,
    fno_n_layers=2,
    fno_conv_module=DiffusionSpectralConv,
)
accelerate_gno(model)
n_parameters = sum(p.numel() for p in model.parameters())
print(f"{n_parameters} parameters, {len(train[0][0])} vertices per car")
print(model.gno)

# %%
# Training
# --------

N_EPOCHS = 12
optimiser = torch.optim.AdamW(model.parameters(), lr=6e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimiser, max_lr=6e-3, total_steps=N_EPOCHS * len(train)
)
start = time.perf_counter()
for epoch in range(N_EPOCHS):
    total = 0.0
    for k in torch.randperm(len(train)).tolist():
        vertices, values, fields = train[k]
        optimiser.zero_grad()
        predicted = model(in_p=grid, out_p=vertices, f=fields)
        loss = (predicted - (values - mean) / std).square().mean()
        loss.backward()
        optimiser.step()
        schedule.step()
        total += loss.item() / len(train)
    if epoch % 3 == 2:
        print(
            f"epoch {epoch + 1:2d}: {time.perf_counter() - start:4.0f} s, {total:.4f}"
        )

# %%
# Cars that the model has not seen
# --------------------------------


@torch.no_grad()
def predict(vertices, fields):
    return model(in_p=grid, out_p=vertices, f=fields) * std + mean


for vertices, values, fields in test:
    error = predict(vertices, fields) - values
    print(
        f"relative error {error.norm() / (values - mean).norm():.3f} of the variation"
    )

# %%
# The first of them, seen from the front; the wind blows along the car.

shape = (N_ALONG, N_AROUND)
body = cars[len(train)][0]
truth = test[0][1].view(shape).numpy()
prediction = predict(test[0][0], test[0][2]).view(shape).numpy()
limit = np.abs(truth).max()
panels = {
    "Synthetic pressure": (truth, "RdBu_r", -limit, limit),
    "Predicted": (prediction, "RdBu_r", -limit, limit),
    "Absolute error": (np.abs(prediction - truth), "magma_r", 0, limit / 2),
}
figure = plt.figure(figsize=(13, 3.8), layout="constrained")
for i, (title, (field, colours, low, high)) in enumerate(panels.items()):
    axes = figure.add_subplot(1, 3, i + 1, projection="3d")
    scale = plt.cm.ScalarMappable(plt.Normalize(low, high), colours)
    # A face has the mean of its four corners.
    faces = (field[1:, 1:] + field[:-1, 1:] + field[1:, :-1] + field[:-1, :-1]) / 4
    axes.plot_surface(
        *np.moveaxis(body, -1, 0),
        facecolors=scale.to_rgba(faces),
        rstride=1,
        cstride=1,
        shade=False,
        linewidth=0,
        antialiased=False,
    )
    axes.set(xlim=(0.1, 0.9), ylim=(0.25, 0.75), zlim=(0.3, 0.7))
    axes.set_title(title, y=0.86)
    axes.set_box_aspect((0.8, 0.5, 0.4), zoom=1.3)
    axes.view_init(elev=22, azim=-125)
    axes.set_axis_off()
    figure.colorbar(
        *(scale, None, axes),
        orientation="horizontal",
        shrink=0.6,
        pad=0.0,
        label="pressure, dimensionless",
    )
plt.show()
