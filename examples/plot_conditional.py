"""
One model for many viscosities
==============================

The solution of Burgers' equation depends on its viscosity. A model that sees the
initial field alone cannot know it. `ConditionalDiffusionConv` takes it as a condition,
which shifts the diffusion times of each layer. This example trains three models on four
viscosities and tests them on others: one without the viscosity, one that gets it as a
constant input channel, and one with conditional layers.
"""

# %%
# Imports
# -------

import math

import matplotlib.pyplot as plt
import torch
from neuralop import LpLoss
from neuralop.models import FNO
from neuralop.utils import count_model_params

from dinozaur_no import (
    ConditionalDiffusionConv,
    Conditioned,
    DiffusionSpectralConv,
    parameter_groups,
)

N_TRAIN, N_TEST, N_EPOCHS, RATE = 64, 32, 40, 5e-3

# %%
# Data
# ----
# The equation is u_t + u u_x = viscosity u_xx on a periodic interval. A pseudo-spectral
# method advances all fields together, each with its own viscosity. A time step combines
# Heun's method for transport with the exact decay by viscosity.


def random_fields(n_fields, n):
    """Draw smooth random fields of zero mean, (n_fields, n)."""
    k = torch.fft.rfftfreq(n, 1 / n)
    spectrum = 0.3 * math.sqrt(n) * torch.exp(-(k**2) / 8)
    spectrum[0] = 0
    return torch.fft.irfft(spectrum * torch.fft.rfft(torch.randn(n_fields, n)))


def burgers(u, viscosity, time, steps=500):
    """Return fields (b, n) after some time; there is one viscosity for each."""
    n, dt = u.shape[-1], time / steps
    k = 2 * torch.pi * torch.fft.rfftfreq(n, 1 / n)
    decay = torch.exp(-viscosity[:, None] * k**2 * dt)
    kept = k < 2 * torch.pi * n / 3  # products would alias into the others

    def transport(u):
        return -0.5j * k * kept * torch.fft.rfft(torch.fft.irfft(u, n).square())

    u = torch.fft.rfft(u)
    for _ in range(steps):
        first = transport(u)
        second = transport(decay * (u + dt * first))
        u = decay * (u + dt / 2 * first) + dt / 2 * second
    return torch.fft.irfft(u, n)


# %%
# Four viscosities are for training. The test has nine: these four, the three between
# them, and one beyond each end. Fields are computed on 256 points, and every fourth is
# kept.

TESTED = 3e-3 * 10 ** (torch.arange(-1, 8) / 6)
SEEN = TESTED[1:8:2]


def problem(viscosities, n_fields, seed):
    """Return initial fields, later fields and viscosities; n_fields per viscosity."""
    torch.manual_seed(seed)
    u = random_fields(n_fields * len(viscosities), 256)
    viscosity = viscosities.repeat_interleave(n_fields)
    later = burgers(u, viscosity, time=0.5)
    return u[:, None, ::4], later[:, None, ::4], viscosity


train, test = problem(SEEN, N_TRAIN, seed=0), problem(TESTED, N_TEST, seed=1)

# %%
# The condition is the logarithm of the viscosity, with zero mean and unit variance over
# the training fields.


def condition_of(viscosity):
    """Return the condition of each field, (b, 1)."""
    return ((viscosity.log() - SEEN.log().mean()) / SEEN.log().std())[:, None]


# %%
# Three models
# ------------
# A conditional layer has one more number per channel and condition. `Conditioned` gives
# the condition to all layers. The others get the same fields, seeds and steps.


class WithChannel(torch.nn.Module):
    """A model with the condition as one more channel, constant in space."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, z):
        """Return the prediction for fields x with condition z."""
        return self.model(torch.cat([x, z[..., None].expand_as(x)], 1))


class Without(WithChannel):
    """A model that ignores the condition."""

    def forward(self, x, z):
        """Return the prediction for fields x."""
        return self.model(x)


def build(wrapper, in_channels, conv):
    """Return a model, built with the same random seed each time."""
    torch.manual_seed(0)
    return wrapper(FNO((32,), in_channels, 1, 32, n_layers=3, conv_module=conv))


models = {
    "without viscosity": build(Without, 1, DiffusionSpectralConv),
    "viscosity as a channel": build(WithChannel, 2, DiffusionSpectralConv),
    "conditional layers": build(Conditioned, 1, ConditionalDiffusionConv),
}

# %%
# Training
# --------

relative_l2 = LpLoss(d=1, reduction="mean")
x, y, viscosity = train
z = condition_of(viscosity)
for name, model in models.items():
    torch.manual_seed(0)
    batches = N_EPOCHS * len(x.split(16))
    optimizer = torch.optim.AdamW(parameter_groups(model, RATE))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, batches)
    for _ in range(N_EPOCHS):
        for batch in torch.randperm(len(x)).split(16):
            optimizer.zero_grad()
            loss = relative_l2(model(x[batch], z=z[batch]), y[batch])
            loss.backward()
            optimizer.step()
            scheduler.step()
    parameters = count_model_params(model)
    print(f"{name:24}{parameters:6} parameters, last batch {loss.item():.3f}")

# %%
# Error over viscosity
# --------------------
# The mean relative error of test fields. A star marks viscosities of the training
# fields; the first and the last are outside of their range.

x, y, viscosity = test
with torch.no_grad():
    found = {
        name: model(x, z=condition_of(viscosity)) for name, model in models.items()
    }
errors = {
    name: ((u - y).norm(dim=2) / y.norm(dim=2)).view(len(TESTED), -1).mean(1)
    for name, u in found.items()
}
print(f"{'viscosity':>10} " + "".join(f"{name:>26}" for name in models))
for i, v in enumerate(TESTED):
    row = "".join(f"{error[i]:26.3f}" for error in errors.values())
    print(f"{v:10.4f}{'*' if v in SEEN else ' '}{row}")

# %%
# Left: the table as a figure. Right: one initial field at three viscosities that no
# model was trained with.
#
# This is one short run with one random seed. Both models that know the viscosity are
# far better than the one that does not. Which of the two is better depends on the range
# of viscosities and on the length of the training; their errors grow outside of the
# range of the training fields.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for name, error in errors.items():
    left.loglog(TESTED, error, marker="o", markersize=4, label=name)
for v in SEEN:
    left.axvline(v, color="grey", linewidth=0.8, linestyle=":")
left.set_xticks(SEEN, [f"{v:.4f}" for v in SEEN])
left.set_xticks([], minor=True)
left.set(xlabel="viscosity (dotted: training)", ylabel="relative L2 error")
left.legend()

points = torch.arange(64) / 64
unseen = TESTED[2:7:2]
torch.manual_seed(2)
u = random_fields(1, 256).expand(len(unseen), 256)
truth = burgers(u, unseen, time=0.5)[:, ::4]
with torch.no_grad():
    found = models["conditional layers"](u[:, None, ::4], z=condition_of(unseen))
right.plot(points, u[0, ::4], color="grey", linestyle=":", label="initial field")
for i, v in enumerate(unseen):
    right.plot(points, truth[i], color=f"C{i}", label=f"viscosity {v:.3f}")
    right.plot(points, found[i, 0], color=f"C{i}", linestyle="--")
right.set(xlabel="x", ylabel="u at time 0.5 (dashed: conditional layers)")
right.legend()
plt.show()
