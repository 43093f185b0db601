"""
Speeds that were not in the training data
=========================================

The pressure on a body depends on its shape and on the speed of the wind. Here the
speed is a second channel of the input, the same number at every point of the grid. The
model is trained on bodies in slow and in fast winds, asked about speeds in between, and
then about one body in any wind.

Run it from the project's folder, whose solver makes the data.
"""

# %%
# Import what is needed
# ---------------------

import sys

import matplotlib.pyplot as plt
import torch
from neuralop.models import FNOGNO

from dinozaur_no import DiffusionSpectralConv, accelerate_gno

sys.path.append("")  # where Python finds the folder of the benchmarks
from benchmarks.data import ahmed
from benchmarks.data.sets import load_splits

torch.manual_seed(0)

# %%
# Ahmed bodies
# ------------
# Boxes with a round front and a slanted rear, in winds of 10 to 70 m/s. What their
# flow is not:

print(ahmed.recipe()["limits"])

# %%
# In such a flow the pressure is proportional to the square of the speed, exactly. The
# model is not told so.

N_BODIES, N_GRID = 64, 16
CELLS, PANEL_CELLS = (24, 8, 8), (24, 8, 8)
splits = load_splits(
    "ahmed",
    n_train=N_BODIES,
    n_test=1,
    grid=N_GRID,
    cells=CELLS,
    panel_cells=PANEL_CELLS,
    workers=1,
    progress=False,
)
SLOWEST, FASTEST = ahmed.RANGES["speed"]
UNSEEN = (32.0, 48.0)


def speed(item):
    """Speed of the wind in m/s; 0 and 1 stand for the slowest and the fastest."""
    return SLOWEST + (FASTEST - SLOWEST) * item["f"][0, 0, 0, 1].item()


bodies = list(splits.train)
train = [item for item in bodies if not UNSEEN[0] < speed(item) < UNSEEN[1]]
between = [item for item in bodies if UNSEEN[0] < speed(item) < UNSEEN[1]]
std = torch.cat([item["y"] for item in train]).std()
print(f"{len(train)} bodies for training, {len(between)} at speeds in between")

# %%
# Training
# --------

N_EPOCHS, RATE = 20, 6e-3
model = FNOGNO(
    in_channels=2,  # distance and speed
    out_channels=1,
    gno_radius=0.11,
    gno_embed_channels=8,
    gno_channel_mlp_hidden_layers=[64, 32],
    gno_use_open3d=False,
    gno_use_torch_scatter=False,
    fno_n_modes=(10, 10, 10),
    fno_hidden_channels=16,
    fno_n_layers=2,
    fno_conv_module=DiffusionSpectralConv,
)
accelerate_gno(model)
optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
schedule = torch.optim.lr_scheduler.OneCycleLR(
    optimiser, max_lr=RATE, total_steps=N_EPOCHS * len(train)
)


def apply(item, fields):
    """The scaled pressure on the vertices of a body."""
    return model(in_p=item["in_p"], out_p=item["out_p"], f=fields)


for epoch in range(N_EPOCHS):
    total = 0.0
    for k in torch.randperm(len(train)).tolist():
        optimiser.zero_grad()
        loss = (apply(train[k], train[k]["f"]) - train[k]["y"] / std).square().mean()
        loss.backward()
        optimiser.step()
        schedule.step()
        total += loss.item() / len(train)
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1:2d}: mean square {total:.4f}")

# %%
# Bodies and speeds that the model has not seen
# ---------------------------------------------


@torch.no_grad()
def predict(item, metres_per_second):
    fields = item["f"].clone()
    fields[..., 1] = (metres_per_second - SLOWEST) / (FASTEST - SLOWEST)
    return apply(item, fields) * std


print("m/s    relative error")
for item in sorted(between, key=speed):
    error = (predict(item, speed(item)) - item["y"]).norm() / item["y"].norm()
    print(f"{speed(item):4.1f} {error:13.3f}")

# %%
# One body in any wind
# --------------------
# The root mean square of the pressure on the first of these bodies. The truth for all
# speeds follows from that for one.

body = min(between, key=lambda item: abs(speed(item) - 40))
speeds = torch.linspace(SLOWEST, FASTEST, 25)
found = [predict(body, value.item()) for value in speeds]
truth = [body["y"] * (value / speed(body)) ** 2 for value in speeds]
errors = [((f - t).norm() / t.norm()).item() for f, t in zip(found, truth, strict=True)]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
left.plot(speeds, [p.square().mean().sqrt() for p in truth], "k--", label="truth")
left.plot(speeds, [p.square().mean().sqrt() for p in found], label="model")
left.set(xlabel="speed [m/s]", ylabel="root mean square pressure [Pa]")
right.semilogy(speeds, errors)
right.set(xlabel="speed [m/s]", ylabel="relative error")
for axes in (left, right):
    axes.axvspan(*UNSEEN, color="grey", alpha=0.2, label="not in training")
left.legend()
plt.show()
