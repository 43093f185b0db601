"""
One argument exchanges the convolution of an FNO
================================================

Darcy flow, learned twice: by neuraloperator's `FNO` as it is, and by the same `FNO`
with ``conv_module=DiffusionSpectralConv``. Everything else is equal: data, width,
modes, loss, steps.

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

# %%
# Data
# ----
# A permeability with two values, and the pressure of the flow through it. The equation
# is solved on 94 x 94 nodes, of which every third is kept. That makes 32 per axis, an
# even number: on odd grids the dense layer of neuraloperator 2.0.0 shifts its modes
# the wrong way, and the comparison would not be fair. Inputs and training targets are
# scaled; test fields stay in physical units.

N_TRAIN, N_TEST = 160, 40
splits = load_splits(
    "darcy",
    n_train=N_TRAIN,
    n_test=N_TEST,
    size=94,
    stride=3,
    workers=1,
    progress=False,
)
x_train, y_train, x_test, y_test = (
    torch.stack([item[key] for item in part])
    for part in (splits.train, splits.test)
    for key in ("x", "y")
)
scale_x, scale_y = splits.normalizers["x"], splits.normalizers["y"]
x_train, x_test = scale_x.transform(x_train), scale_x.transform(x_test)
y_train = scale_y.transform(y_train)

# %%
# Two models
# ----------
# Here is the difference between them. The dense layer has a complex matrix of
# width x width for each mode, the diffusion layer one time per channel and three
# matrices of that size in all, however many modes there are.


def build(**options):
    torch.manual_seed(0)
    return FNO(
        n_modes=(12, 12),
        in_channels=1,
        out_channels=1,
        hidden_channels=20,
        n_layers=3,
        domain_padding=0.1,
        **options,
    )


models = {
    "SpectralConv": build(),
    "DiffusionSpectralConv": build(conv_module=DiffusionSpectralConv),
}
print(f"{'parameters of':24}{'the model':>12}{'its convolutions':>20}")
for name, model in models.items():
    of_layers = count_model_params(model.fno_blocks.convs)
    print(f"{name:24}{count_model_params(model):12}{of_layers:20}")

# %%
# Training
# --------
# The relative error of the scaled pressure is minimised; after each epoch the relative
# error of the test fields is measured in physical units.

N_EPOCHS = 16
relative = LpLoss(d=2, reduction="mean")


@torch.no_grad()
def predict(model):
    outputs = torch.cat([model(part) for part in x_test.split(20)])
    return scale_y.inverse_transform(outputs)


def train(model):
    """Errors of the test fields after each epoch."""
    torch.manual_seed(1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=4e-3, total_steps=N_EPOCHS * len(x_train.split(16))
    )
    errors = []
    for _ in range(N_EPOCHS):
        for batch in torch.randperm(N_TRAIN).split(16):
            optimiser.zero_grad()
            relative(model(x_train[batch]), y_train[batch]).backward()
            optimiser.step()
            schedule.step()
        errors.append(relative(predict(model), y_test).item())
    return errors


curves = {name: train(model) for name, model in models.items()}
for name, errors in curves.items():
    print(f"{name:24} relative error {errors[-1]:.4f}")

# %%

figure, axes = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for name, errors in curves.items():
    axes.semilogy(range(1, N_EPOCHS + 1), errors, marker=".", label=name)
axes.set(xlabel="epoch", ylabel="relative error of test fields")
axes.legend()
plt.show()

# %%
# The first test field
# --------------------
# Left: input and true pressure. Middle and right: the predictions, in the colours of
# the true pressure, and below them their errors, on one common scale.
#
# When this was written, the diffusion layers had the smaller error on the test fields,
# with a small part of the parameters. It is one seed with few fields, and the learning
# rate was not chosen for either model.

truth = y_test[0, 0]
predictions = {name: predict(model)[0, 0] for name, model in models.items()}
largest = max((field - truth).abs().max() for field in predictions.values())
panels = [
    [("permeability", x_test[0, 0], {"cmap": "Greys"})],
    [("pressure", truth, {"vmin": 0, "vmax": truth.max()})],
]
for name, field in predictions.items():
    style = {"cmap": "magma", "vmin": 0, "vmax": largest}
    panels[0].append((name, field, {"vmin": 0, "vmax": truth.max()}))
    panels[1].append((f"|error|, {name}", (field - truth).abs(), style))
figure, rows = plt.subplots(2, 3, figsize=(9.5, 5.6), layout="constrained")
for axes, panel in zip(rows.flat, panels[0] + panels[1], strict=True):
    title, field, style = panel
    image = axes.imshow(field.T.numpy(), origin="lower", extent=(0, 1, 0, 1), **style)
    axes.set_title(title, fontsize="medium")
    axes.set(xticks=[0, 1], yticks=[0, 1])
    if title != "permeability":
        figure.colorbar(image, ax=axes, shrink=0.85)
plt.show()
