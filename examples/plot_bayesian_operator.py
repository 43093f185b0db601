"""
Error bars from one training
============================

A Bayesian neural operator for a problem in one dimension: from the conductivity a(x) to
the temperature u(x) of a rod that is heated evenly and kept at zero at both ends,

    -(a u')' = 1,    u(0) = u(1) = 0.

The model is neuraloperator's `FNO` with `BayesianDiffusionConv`. It is trained in a
plain loop, and once more with neuraloperator's `Trainer`.
"""

# %%
# Import what is needed
# ---------------------

import math

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
from dinozaur_no.plots import plot_posteriors, plot_samples

torch.manual_seed(0)

# %%
# Data
# ----
# In one dimension the flux a u' is a constant minus x, so the solution is an integral.

N_POINTS = 64


def rods(n):
    """Logarithms of random conductivities, and the temperatures they lead to."""
    k = torch.arange(1, 9)
    x = torch.linspace(0, 1, N_POINTS)
    waves = torch.cos(math.pi * k[:, None] * x)
    log_a = torch.randn(n, 8) / k**1.0 @ waves
    resistance = torch.exp(-log_a)
    ones = torch.cumulative_trapezoid(resistance, x)
    heated = torch.cumulative_trapezoid(resistance * x, x)
    u = heated[:, -1:] / ones[:, -1:] * ones - heated
    u = torch.nn.functional.pad(u, (1, 0))
    return log_a[:, None], u[:, None]


(x, y), (x_test, y_test) = rods(400), rods(100)
mean, std = y.mean(), y.std()
y = (y - mean) / std
print(f"{len(x)} rods for training, {len(x_test)} to test")

# %%
# The model
# ---------
# Another ``conv_module``, and a wrapper that knows about noise, loss and draws.


def build():
    fno = FNO(
        n_modes=(16,),
        in_channels=1,
        out_channels=1,
        hidden_channels=24,
        n_layers=3,
        domain_padding=0.25,
        conv_module=BayesianDiffusionConv,
    )
    return VariationalOperator(fno)


operator = build()

# %%
# Training in a plain loop
# ------------------------
# The divergence from the prior gets its full weight after five epochs.

N_EPOCHS = 40
optimiser = torch.optim.AdamW(parameter_groups(operator, lr=2e-3))
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, N_EPOCHS)
for epoch in range(N_EPOCHS):
    for batch in torch.randperm(len(x)).split(20):
        optimiser.zero_grad()
        prediction = operator(x[batch])
        beta = min(1.0, (epoch + 1) / 5)
        loss = operator.loss(prediction, y[batch], num_data=len(x), beta=beta)
        loss.backward()
        optimiser.step()
    schedule.step()
    if epoch % 10 == 9:
        noise = operator.noise_variance.sqrt().item()
        print(f"epoch {epoch + 1}: loss {loss.item():8.1f}, noise {noise:.4f}")

# %%
# Predictions with error bars
# ---------------------------
# A hundred draws for each test rod. The interval of 90 % should hold about 90 % of the
# points of rods that the model has not seen.


class Units:
    """From the normalised temperature to the physical one."""

    @staticmethod
    def inverse_transform(field):
        return field * std + mean


def report(operator):
    predictive = operator.predict(x_test, n_samples=100).denormalize(Units)
    low, high = predictive.interval(0.9)
    inside = ((low <= y_test) & (y_test <= high)).float().mean()
    error = (predictive.mean - y_test).flatten(1).norm(dim=1)
    error = (error / y_test.flatten(1).norm(dim=1)).mean()
    print(f"relative error {error:.4f}, inside the interval of 90 %: {inside:.3f}")
    return predictive


predictive = report(operator)
print(predictive)

# %%
# The first test rod: draws of the operator, their mean, and the band of 90 %.

place = torch.linspace(0, 1, N_POINTS)
figure = plot_samples(predictive, y_test, item=0, coordinates=place)
plt.show()

# %%
# And the test rod with the largest error. One variance of the noise for all points is
# right on average; it does not know that this rod is unlike the others.

worst = int((predictive.mean - y_test).flatten(1).norm(dim=1).argmax())
figure = plot_samples(predictive, y_test, item=worst, coordinates=place)
plt.show()

# %%
# What was learned about the diffusion times, layer by layer.

figure = plot_posteriors(operator)
plt.show()

# %%
# The same with neuraloperator's Trainer
# --------------------------------------
# One object is both loss and regulariser. Everything else is as for any other model.

operator = build()
samples = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
objective = VariationalLoss(operator, num_data=len(samples), warmup_steps=100)
optimiser = torch.optim.AdamW(parameter_groups(operator, lr=2e-3))
trainer = Trainer(model=operator, n_epochs=10, eval_interval=5, verbose=False)
trainer.train(
    train_loader=DataLoader(samples, batch_size=20, shuffle=True),
    test_loaders={"training": DataLoader(samples, batch_size=100)},
    optimizer=optimiser,
    scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 10),
    training_loss=objective,
    regularizer=objective,
    eval_losses={"l2": LpLoss(d=1)},
)
report(operator)
