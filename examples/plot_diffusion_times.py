"""
What diffusion times learn
==========================

A diffusion layer has one number per channel that says how far the channel looks: the
time for which it diffuses. This example trains a model on Darcy flow, compares the
times before and after, and shows what a time means in space.

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

from dinozaur_no import DiffusionSpectralConv
from dinozaur_no.plots import plot_times

sys.path.append("")  # where Python finds the folder of the benchmarks
from benchmarks.data.darcy import darcy_fields

torch.manual_seed(0)

# %%
# Data and model
# --------------
# From a permeability with two values to the pressure, both scaled. Initial times are
# spaced logarithmically over the channels, in every block alike.

N_TRAIN = 160
coeff, sol = darcy_fields(N_TRAIN, size=61, stride=2, workers=1, progress=False)
x, y = torch.from_numpy(coeff)[:, None], torch.from_numpy(sol)[:, None]
x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()

N_MODES = 16
model = FNO(
    n_modes=(N_MODES, N_MODES),
    in_channels=1,
    out_channels=1,
    hidden_channels=24,
    n_layers=4,
    domain_padding=0.1,
    conv_module=DiffusionSpectralConv.configure(time_init=(1e-4, 1e-1)),
)
layers = list(model.fno_blocks.convs)
initial = [layer.diffusion_time.detach().clone() for layer in layers]

# %%
# Training
# --------
# Adam moves a parameter by about one learning rate per step, and times are stored as
# logarithms: to cross the orders of magnitude between them in few steps they need a
# larger rate than the weights, and no decay.

N_EPOCHS, RATE = 20, 3e-3
times = [layer.raw_time for layer in layers]
weights = [p for p in model.parameters() if all(p is not time for time in times)]
optimiser = torch.optim.AdamW(
    [
        {"params": weights, "lr": RATE},
        {"params": times, "lr": 10 * RATE, "weight_decay": 0.0},
    ]
)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, N_EPOCHS)
relative = LpLoss(d=2, reduction="mean")
for epoch in range(N_EPOCHS):
    for batch in torch.randperm(len(x)).split(16):
        optimiser.zero_grad()
        loss = relative(model(x[batch]), y[batch])
        loss.backward()
        optimiser.step()
    schedule.step()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1:2d}: relative error of a batch {loss.item():.3f}")

# %%
# Before and after
# ----------------

print(f"{'':10}{'shortest':>12}{'median':>12}{'longest':>12}")
print(
    f"{'initial':10}"
    + "".join(f"{f(initial[0]).item():12.5f}" for f in (min, torch.median, max))
)
learned = [layer.diffusion_time.detach() for layer in layers]
for number, time in enumerate(learned, 1):
    values = "".join(f"{f(time).item():12.5f}" for f in (min, torch.median, max))
    print(f"block {number:<4}{values}")

# %%
# One point per channel; on the line nothing has changed. When this was written, most
# channels stayed near the scale where they began, which is why a start that covers all
# scales is a good one. In the first three blocks the longest times became shorter: a
# channel that diffuses so long holds little more than its mean. In the last block the
# shortest times became longer.

figure, panels = plt.subplots(
    1,
    len(layers),
    figsize=(10, 2.9),
    sharex=True,
    sharey=True,
    layout="constrained",
)
for number, axes in enumerate(panels):
    axes.loglog(initial[number], initial[number], color="grey", linewidth=1)
    axes.loglog(initial[number], learned[number], "o", markersize=4)
    axes.set_title(f"block {number + 1}", fontsize="medium")
panels[0].set_ylabel("learned time")
figure.supxlabel("initial time", fontsize="medium")
plt.show()

# %%
# The same times as histograms, which `plot_times` draws for any model.

figure = plot_times(model)
plt.show()

# %%
# What a time means in space
# --------------------------
# A point source, diffused for the shortest, the median and the longest learned time by
# a layer without gradient features. The standard deviation of the heat kernel is
# the square root of twice the time, in units of the periodic box; that is the padded
# domain here.
#
# The shortest time sees a few points only, and what is left of a point source there is
# mostly the limit of the modes, with its ripples. The longest one gives all points
# nearly the same weight.

everything = torch.cat(learned)
chosen = torch.stack([everything.min(), everything.median(), everything.max()])
N_GRID = 65
diffusion = DiffusionSpectralConv(3, 3, (N_MODES, N_MODES), gradient_features=False)
diffusion.diffusion_time = chosen
source = torch.zeros(1, 3, N_GRID, N_GRID)
source[:, :, N_GRID // 2, N_GRID // 2] = N_GRID**2  # its integral is one
with torch.no_grad():
    kernels = diffusion(source)[0]

place = (torch.arange(N_GRID) - N_GRID // 2) / N_GRID
figure, panels = plt.subplots(1, 4, figsize=(12, 2.9), layout="constrained")
for axes, kernel, time in zip(panels, kernels, chosen.tolist(), strict=False):
    limit = kernel.abs().max()
    image = axes.imshow(
        kernel.T.numpy(),
        cmap="RdBu_r",
        vmin=-limit,
        vmax=limit,
        origin="lower",
        extent=(-0.5, 0.5, -0.5, 0.5),
    )
    figure.colorbar(image, ax=axes, shrink=0.85)
    axes.set_title(rf"$\tau$ = {time:.2g}", fontsize="medium")
    axes.set(xticks=[-0.5, 0, 0.5], yticks=[-0.5, 0, 0.5])
    middle = kernel[:, N_GRID // 2]
    panels[3].plot(place, middle / middle.max(), label=rf"$\tau$ = {time:.2g}")
panels[3].set_title("through the middle, scaled", fontsize="medium")
panels[3].set_box_aspect(1)
panels[3].legend(fontsize="small")
plt.show()
