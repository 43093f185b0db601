"""
Error bars from one training
============================

A Bayesian neural operator for Darcy flow: from a permeability to a distribution over
pressures. The model is neuraloperator's `FNO` with `BayesianDiffusionConv`, which
learns a distribution over diffusion times. It is trained in a plain loop, and once more
with neuraloperator's `Trainer`.

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
from neuralop.training import Trainer
from torch.utils.data import DataLoader

from dinozaur_no import (
    BayesianDiffusionConv,
    VariationalLoss,
    VariationalOperator,
    parameter_groups,
)
from dinozaur_no.metrics import evaluate
from dinozaur_no.plots import (
    plot_posteriors,
    plot_reliability,
    plot_samples,
    plot_uncertainty,
)

sys.path.append("")  # where Python finds the folder of the benchmarks
from benchmarks.data.sets import load_splits

torch.manual_seed(0)

# %%
# Data
# ----
# A permeability with two values, and the pressure of the flow through it. Few fields
# for training, so that there is something to be uncertain about. Inputs and training
# targets are scaled; test fields stay in physical units.

N_TRAIN, N_TEST = 160, 40
splits = load_splits(
    "darcy",
    n_train=N_TRAIN,
    n_test=N_TEST,
    size=61,
    stride=2,
    workers=1,
    progress=False,
)
x, y, x_test, y_test = (
    torch.stack([item[key] for item in part])
    for part in (splits.train, splits.test)
    for key in ("x", "y")
)
scale_x, scale_y = splits.normalizers["x"], splits.normalizers["y"]
x, y, x_test = scale_x.transform(x), scale_y.transform(y), scale_x.transform(x_test)
print(f"{len(x)} fields for training, {len(x_test)} to test, {y.shape[-1]}^2 points")

# %%
# The model
# ---------
# Another ``conv_module``, and a wrapper that knows about noise, loss and draws.


def build():
    fno = FNO(
        n_modes=(12, 12),
        in_channels=1,
        out_channels=1,
        hidden_channels=20,
        n_layers=3,
        domain_padding=0.1,
        conv_module=BayesianDiffusionConv,
    )
    return VariationalOperator(fno)


operator = build()

# %%
# Training in a plain loop
# ------------------------
# The divergence from the prior gets its full weight after five epochs.

N_EPOCHS = 20
optimiser = torch.optim.AdamW(parameter_groups(operator, lr=3e-3))
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, N_EPOCHS)
for epoch in range(N_EPOCHS):
    for batch in torch.randperm(len(x)).split(16):
        optimiser.zero_grad()
        prediction = operator(x[batch])
        beta = min(1.0, (epoch + 1) / 5)
        loss = operator.loss(prediction, y[batch], num_data=len(x), beta=beta)
        loss.backward()
        optimiser.step()
    schedule.step()
    if epoch % 5 == 4:
        noise = operator.noise_variance.sqrt().item()
        print(f"epoch {epoch + 1}: loss {loss.item():8.1f}, noise {noise:.4f}")

# %%
# Predictions with error bars
# ---------------------------
# Draws for each test field. The interval of 90 % should hold about 90 % of the points
# of fields that the model has not seen.

N_DRAWS = 50


def report(operator):
    predictive = operator.predict(x_test, n_samples=N_DRAWS).denormalize(scale_y)
    found = evaluate(predictive, y_test)
    print(f"relative error {found['relative_l2']:.4f}")
    print(f"inside the interval of 90 %: {found['coverage_90']:.3f}")
    return predictive


predictive = report(operator)
print(predictive)

# %%
# The first test field: where are errors, and where are they expected? Most of the
# deviation is noise, which is the same at every point; the draws add little to it.

figure = plot_uncertainty(predictive, y_test, item=0, extent=(1, 1))
plt.show()

# %%
# A line through its middle: draws of the operator, their mean, and the bands of 90 %,
# of the draws alone and with the noise.

place = torch.linspace(0, 1, y.shape[-1])
figure = plot_samples(predictive, y_test, item=0, coordinates=place)
plt.show()

# %%
# And the test field with the largest error. One variance of the noise for all points is
# right on average; it does not know that this field is unlike the others.

worst = int((predictive.mean - y_test).flatten(1).norm(dim=1).argmax())
figure = plot_samples(predictive, y_test, item=worst, coordinates=place)
plt.show()

# %%
# Reliability
# -----------
# The part of all points inside an interval, against the level of the interval. On the
# diagonal both agree. When this was written, the curve was above it but near at high
# levels: a variance that covers the few fields with large errors is too wide for most.

figure = plot_reliability({"Bayesian operator": predictive}, y_test)
plt.show()

# %%
# What was learned about the diffusion times, layer by layer.

figure = plot_posteriors(operator)
plt.show()

# %%
# The same with neuraloperator's Trainer
# --------------------------------------
# One object is both loss and regulariser. Everything else is as for any other model.
# A few epochs, to show how it is done.

N_TRAINER_EPOCHS = 5
operator = build()
samples = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
objective = VariationalLoss(operator, num_data=len(samples), warmup_steps=20)
optimiser = torch.optim.AdamW(parameter_groups(operator, lr=3e-3))
trainer = Trainer(
    model=operator, n_epochs=N_TRAINER_EPOCHS, eval_interval=5, verbose=False
)
trainer.train(
    train_loader=DataLoader(samples, batch_size=16, shuffle=True),
    test_loaders={"training": DataLoader(samples, batch_size=40)},
    optimizer=optimiser,
    scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, N_TRAINER_EPOCHS),
    training_loss=objective,
    regularizer=objective,
    eval_losses={"l2": LpLoss(d=2)},
)
report(operator)
