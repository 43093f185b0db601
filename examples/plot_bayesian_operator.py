"""
Error bars from one training run
================================

This example trains a Bayesian neural operator for Darcy flow. For each permeability it
predicts a distribution over pressures. The model is neuraloperator's `FNO` with
`BayesianDiffusionConv`, which learns a distribution over diffusion times.
neuraloperator's `Trainer` trains it.
"""

# %%
# Imports
# -------

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
import torch
from neuralop import LpLoss
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from neuralop.models import FNO
from neuralop.training import Trainer
from scipy import fft, sparse
from scipy.sparse.linalg import spsolve
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

torch.manual_seed(0)

N_TRAIN, N_TEST, N_EPOCHS, RATE = 160, 40, 20, 3e-3
N_SAMPLES = 50

# %%
# Data
# ----
# Darcy flow: water seeps through a ground with two kinds of soil, and the pressure
# :math:`u` solves :math:`-\nabla \cdot (a \nabla u) = 1` with :math:`u = 0` on the
# boundary. The permeability :math:`a` is 12 where a smooth random field is positive,
# and 3 elsewhere. Finite differences turn the equation into a sparse linear system.


def darcy_flow(seed, n):
    """Return a random permeability and its pressure on n x n nodes."""
    k = np.pi * np.arange(n)
    spectrum = 1 / (k[:, None] ** 2 + k**2 + 9)
    spectrum[0, 0] = 0  # no mean
    noise = np.random.default_rng(seed).standard_normal((n, n))
    a = np.where(fft.idctn(spectrum * noise, norm="ortho") > 0, 12.0, 3.0)
    # Differences between neighbours; the inner nodes are unknown, the outer ones zero.
    step = (n - 1) * sparse.diags([1.0, -1.0], [0, -1], shape=(n - 1, n - 2))
    keep, inner = sparse.eye(n - 2), slice(1, -1)
    d_x, d_y = sparse.kron(step, keep), sparse.kron(keep, step)
    a_x = sparse.diags((a[1:, inner] + a[:-1, inner]).ravel() / 2)
    a_y = sparse.diags((a[inner, 1:] + a[inner, :-1]).ravel() / 2)
    matrix = (d_x.T @ a_x @ d_x + d_y.T @ a_y @ d_y).tocsc()
    u = np.zeros((n, n))
    u[inner, inner] = spsolve(
        matrix, np.ones((n - 2) ** 2), permc_spec="MMD_AT_PLUS_A"
    ).reshape(n - 2, n - 2)
    return a, u


# %%
# There are few training fields, so there is something to be uncertain about. Inputs and
# training targets are normalised; test targets stay in physical units.

fields = np.stack([darcy_flow(seed, 61) for seed in range(N_TRAIN + N_TEST)])
x, y = torch.from_numpy(fields[:, :, None, :-1:2, :-1:2]).float().unbind(1)
scale_x, scale_y = (UnitGaussianNormalizer(dim=[0, 2, 3]) for _ in "xy")
scale_x.fit(x[:N_TRAIN])
scale_y.fit(y[:N_TRAIN])
x_train, x_test = scale_x.transform(x).split([N_TRAIN, N_TEST])
y_train, y_test = scale_y.transform(y[:N_TRAIN]), y[N_TRAIN:]
print(f"training fields {tuple(y_train.shape)}, test fields {tuple(y_test.shape)}")

# %%
# The model
# ---------
# `VariationalOperator` wraps a model with Bayesian layers. It adds the observation
# noise and the loss, and it draws samples.

fno = FNO(
    n_modes=(12, 12),
    in_channels=1,
    out_channels=1,
    hidden_channels=20,
    n_layers=3,
    domain_padding=0.1,
    conv_module=BayesianDiffusionConv,
)
operator = VariationalOperator(fno)
initial_time = fno.fno_blocks.convs[0].diffusion_time.detach().clone()

# %%
# Training
# --------
# One object is both loss and regulariser: the negative log-likelihood, and the KL
# divergence of the posterior from the prior. The weight of the divergence grows from
# zero to one during the first quarter of the training. `parameter_groups` gives the
# posterior a larger learning rate than the weights, and no weight decay.

items = [{"x": a, "y": u} for a, u in zip(x_train, y_train, strict=True)]
loader = DataLoader(items, batch_size=16, shuffle=True)
objective = VariationalLoss(
    operator, num_data=N_TRAIN, warmup_steps=N_EPOCHS * len(loader) // 4
)
optimizer = torch.optim.AdamW(parameter_groups(operator, lr=RATE))
trainer = Trainer(model=operator, n_epochs=N_EPOCHS, eval_interval=N_EPOCHS)
trainer.train(
    train_loader=loader,
    test_loaders={"training": DataLoader(items, batch_size=40)},
    optimizer=optimizer,
    scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, N_EPOCHS),
    training_loss=objective,
    regularizer=objective,
    eval_losses={"l2": LpLoss(d=2)},
)

# %%
# The noise of the training is a running average, which lags behind while the fit still
# improves. So it is fitted once more to the final residuals of the training data.

print(f"noise during training {operator.noise_variance.sqrt():.4f}")
batches = zip(x_train.split(40), y_train.split(40), strict=True)
operator.fit_noise(batches, residuals_of="mean", n_samples=10)
print(f"noise after fitting   {operator.noise_variance.sqrt():.4f}")

# %%
# Predictions with error bars
# ---------------------------
# Each sample of the posterior is a complete operator. All samples together give a mean
# and a standard deviation at every point. About 90 % of the points of new fields should
# lie inside the 90 % interval.

predictive = operator.predict(x_test, n_samples=N_SAMPLES).denormalize(scale_y)
scores = evaluate(predictive, y_test)
print(predictive)
print(f"relative L2 error        {scores['relative_l2']:.4f}")
print(f"inside the 90 % interval {scores['coverage_90']:.3f}")
share = predictive.epistemic_variance.mean() / predictive.variance.mean()
print(f"share of the samples in the total variance {share:.2f}")

# %%
# The first test field: where are the errors, and where are they expected? Most of the
# standard deviation is noise, which is the same at every point. Compare the two panels
# on the right.

figure = plot_uncertainty(predictive, y_test, item=0, extent=(1, 1))
plt.show()

# %%
# A line through the middle of the test field with the largest error: posterior samples,
# their mean, and two bands of 90 %, one of the samples alone and one with the noise. A
# noise variance that is equal for all fields is right on average. It cannot know that
# this field is unlike the others.

worst = int((predictive.mean - y_test).flatten(1).norm(dim=1).argmax())
place = torch.arange(y.shape[-1]) / y.shape[-1]
figure = plot_samples(predictive, y_test, item=worst, coordinates=place)
plt.show()

# %%
# Reliability
# -----------
# The share of all points inside an interval, against the level of the interval. On the
# diagonal both agree.

figure = plot_reliability({"Bayesian operator": predictive}, y_test)
plt.show()

# %%
# What was learned about diffusion times
# --------------------------------------
# A diffusion time says how far a channel looks: heat spreads over about the square root
# of twice the time, in units of the periodic box. Short times keep details. Long times
# leave little more than the mean. All blocks start with the same times, which cover all
# scales.

print(f"{'time':10}{'shortest':>12}{'median':>12}{'longest':>12}")
times = {"initial": initial_time}
for number, conv in enumerate(fno.fno_blocks.convs, 1):
    times[f"block {number}"] = conv.diffusion_time.detach()
for name, time in times.items():
    print(f"{name:10}{time.min():12.5f}{time.median():12.5f}{time.max():12.5f}")

# %%
# Prior and posterior of the logarithm of the times: the thick lines are averages over
# all channels, each thin line is one channel.

figure = plot_posteriors(operator)
plt.show()
