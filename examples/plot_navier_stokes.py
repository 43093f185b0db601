"""
Navier-Stokes in space and time
===============================

The vorticity of a plane flow on a torus: from ten records to the next ten, all at once.
The model is a 3-D `FNO` over x, y and time with diffusion layers, whose number of
parameters does not grow with the third dimension.

Run it from the project's folder, whose solver makes the data.
"""

# %%
# Import what is needed
# ---------------------

import sys

import matplotlib.pyplot as plt
import torch
from neuralop import LpLoss
from neuralop.models import FNO
from neuralop.utils import count_model_params

from dinozaur_no import DiffusionSpectralConv

sys.path.append("")  # where Python finds the folder of the benchmarks
from benchmarks.data.sets import load_splits

torch.manual_seed(0)

# %%
# Data
# ----
# The flow starts from a random vorticity and is driven by a fixed force. It is solved
# by a spectral method on 64 x 64 points, of which every second is kept. A viscosity of
# 1e-3 makes it smoother, and easier to predict, than the benchmark's 1e-5.

N_TRAIN, N_TEST = 40, 8
splits = load_splits(
    "navier_stokes",
    n_train=N_TRAIN,
    n_test=N_TEST,
    size=64,
    points=32,
    viscosity=1e-3,
    dt=0.04,
    workers=1,
    progress=False,
)
x, y, x_test, y_test = (
    torch.stack([item[key] for item in part])
    for part in (splits.train, splits.test)
    for key in ("x", "y")
)
x, x_test = x[:, :1], x_test[:, :1]  # without coordinates, which FNO adds itself
print(f"input {tuple(x.shape)}, target {tuple(y.shape)}")

# %%
# The model
# ---------
# Space is periodic and needs no padding; time is not, and gets some. On a grid as
# small as this one ``memory="fast"`` saves time. The model gives the change since the
# last record of the input, so that it begins with a reasonable guess.

model = FNO(
    n_modes=(12, 12, 6),
    in_channels=1,
    out_channels=1,
    hidden_channels=16,
    n_layers=3,
    domain_padding=[0.0, 0.0, 0.2],
    conv_module=DiffusionSpectralConv.configure(memory="fast"),
)


def apply(x):
    return x[..., -1:] + model(x)


print(f"{count_model_params(model)} parameters")

# %%
# Training
# --------

N_EPOCHS, RATE = 20, 5e-3
relative = LpLoss(d=3, reduction="mean")
optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimiser, max_lr=RATE, total_steps=N_EPOCHS * len(x.split(4))
)
for epoch in range(N_EPOCHS):
    total = 0.0
    for batch in torch.randperm(len(x)).split(4):
        optimiser.zero_grad()
        loss = relative(apply(x[batch]), y[batch])
        loss.backward()
        optimiser.step()
        schedule.step()
        total += loss.item() * len(batch) / len(x)
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1:2d}: relative error {total:.3f}")

# %%
# Error over time
# ---------------
# Of flows that the model has not seen, record by record. For comparison: the error of
# assuming that the flow stays as in the last input record.

with torch.no_grad():
    predicted = torch.cat([apply(part) for part in x_test.split(4)])
last = x_test[..., -1:].expand_as(y_test)


def error_over_time(field):
    """Relative error of each record, the mean over all test flows."""
    difference, size = (f.flatten(1, 3).norm(dim=1) for f in (field - y_test, y_test))
    return (difference / size).mean(0)


of_last, of_model = error_over_time(last), error_over_time(predicted)
n_input, n_output = x.shape[-1], y.shape[-1]
times = torch.arange(n_input + 1, n_input + n_output + 1)
figure, axes = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
axes.plot(times, of_last, "--", color="grey", label="last input")
axes.plot(times, of_model, marker=".", label="model")
axes.set(xlabel="time", ylabel="relative error of test flows", ylim=(0, None))
axes.legend()
plt.show()
print("time   last input   model")
for k, time in enumerate(times):
    print(f"{time:4d} {of_last[k]:12.3f} {of_model[k]:7.3f}")

# %%
# Frames of the first test flow
# -----------------------------
# Each column has colours of its own, the same for the flow and the error. When this was
# written, the error grew with time, but more slowly than that of the guess that nothing
# changes. Forty flows are few; the benchmark has a thousand.

FRAMES = (0, 3, 6, 9)
figure, rows = plt.subplots(
    3, len(FRAMES), figsize=(2.6 * len(FRAMES), 7), layout="constrained"
)
for column, frame in zip(rows.T, FRAMES, strict=True):
    truth, found = (field[0, 0, :, :, frame] for field in (y_test, predicted))
    limit = truth.abs().max()
    panels = {"truth": truth, "prediction": found, "error": found - truth}
    for axes, (title, field) in zip(column, panels.items(), strict=True):
        image = axes.imshow(
            field.T.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, origin="lower"
        )
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{title}, time {times[frame]}", fontsize="medium")
    figure.colorbar(image, ax=column, orientation="horizontal", label="vorticity")
plt.show()
