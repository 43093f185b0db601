"""
Pressure on car-like surfaces with FNOGNO
=========================================

From the distance to a car-like body on a regular grid, and its gradient, to the
pressure on the vertices of its surface. The model is neuraloperator's `FNOGNO`, the
decoder half of GINO, with diffusion layers in its Fourier part and with fast graph
layers, which need neither open3d nor torch-scatter.

Run it from the project's folder, whose solver makes the data.
"""

# %%
# Import what is needed
# ---------------------

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from neuralop.models import FNOGNO
from neuralop.utils import count_model_params

from dinozaur_no import DiffusionSpectralConv, accelerate_gno

sys.path.append("")  # where Python finds the folder of the benchmarks
from benchmarks.data import car
from benchmarks.data.sets import load_splits

torch.manual_seed(0)

# %%
# Random cars in the wind
# -----------------------
# Fourteen random numbers make a car. The flow around it is solved by sources on panels.
# What such a flow is not, in the words that are stored with the data:

print(car.recipe()["limits"])

# %%
# Here panels and grid are coarser than in the benchmark. An item has the points of the
# grid and the vertices of the car, both in the unit cube, the signed distance on the
# grid, and the pressure on the vertices.

N_TRAIN, N_TEST, N_GRID = 40, 5, 20
CELLS, PANEL_CELLS = (32, 12, 12), (24, 8, 8)
splits = load_splits(
    "car",
    n_train=N_TRAIN,
    n_test=N_TEST,
    grid=N_GRID,
    cells=CELLS,
    panel_cells=PANEL_CELLS,
    workers=1,
    progress=False,
)
train, test = list(splits.train), list(splits.test)
low, high = np.array(car.CAR.bounds)
mean, std = (getattr(splits.normalizers["y"], key).item() for key in ("mean", "std"))

# %%
# The gradient of the distance is of use as well: on the surface it is the normal.

spacing = tuple((high - low) / (N_GRID - 1))
for item in train + test:
    distance = item["f"][..., 0]
    item["f"] = torch.stack([distance, *torch.gradient(distance, spacing=spacing)], -1)
print({key: tuple(value.shape) for key, value in train[0].items()})

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
    fno_n_modes=(12, 12, 12),
    fno_hidden_channels=16,
    fno_n_layers=2,
    fno_conv_module=DiffusionSpectralConv,
)
accelerate_gno(model)
print(f"{count_model_params(model)} parameters")
print(model.gno)

# %%
# Training
# --------
# One car at a time, as each has vertices of its own.

N_EPOCHS, RATE = 12, 6e-3
optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimiser, max_lr=RATE, total_steps=N_EPOCHS * len(train)
)


def apply(item):
    """The scaled pressure that the model gives to the vertices of a car."""
    return model(in_p=item["in_p"], out_p=item["out_p"], f=item["f"])


for epoch in range(N_EPOCHS):
    total = 0.0
    for k in torch.randperm(len(train)).tolist():
        optimiser.zero_grad()
        loss = (apply(train[k]) - (train[k]["y"] - mean) / std).square().mean()
        loss.backward()
        optimiser.step()
        schedule.step()
        total += loss.item() / len(train)
    if epoch % 3 == 2:
        print(f"epoch {epoch + 1:2d}: mean square {total:.4f}")

# %%
# Cars that the model has not seen
# --------------------------------

with torch.no_grad():
    predictions = [apply(item) * std + mean for item in test]
for item, predicted in zip(test, predictions, strict=True):
    error = (predicted - item["y"]).norm()
    variation = (item["y"] - mean).norm()
    print(
        f"relative error {error / item['y'].norm():.3f}, "
        f"relative to the deviation from the mean pressure {error / variation:.3f}"
    )

# %%
# The first of them, seen from the front; the wind blows along the car.

triangles = splits.test.source[0]["triangles"]
corners = (low + (high - low) * test[0]["out_p"].numpy())[triangles]
truth, predicted = test[0]["y"][:, 0].numpy(), predictions[0][:, 0].numpy()
bottom, top = np.percentile(truth, [1, 99])
panels = {
    "Potential flow": (truth, "RdYlBu_r", bottom, top),
    "Predicted": (predicted, "RdYlBu_r", bottom, top),
    "Absolute error": (np.abs(predicted - truth), "magma_r", 0, (top - bottom) / 4),
}
figure = plt.figure(figsize=(13, 3.8), layout="constrained")
for i, (title, (field, colours, least, most)) in enumerate(panels.items()):
    axes = figure.add_subplot(1, 3, i + 1, projection="3d")
    scale = plt.cm.ScalarMappable(plt.Normalize(least, most), colours)
    # A face has the mean of its three corners.
    faces = scale.to_rgba(field[triangles].mean(1))
    axes.add_collection3d(
        Poly3DCollection(corners, facecolors=faces, edgecolors=faces, linewidths=0.2)
    )
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set_box_aspect(high - low, zoom=1.15)
    axes.view_init(elev=22, azim=-125)
    axes.set_axis_off()
    axes.set_title(title, y=0.9)
    figure.colorbar(
        scale,
        ax=axes,
        orientation="horizontal",
        shrink=0.6,
        pad=0.0,
        label="pressure [Pa]",
    )
plt.show()
