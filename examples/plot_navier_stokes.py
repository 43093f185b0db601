"""
Navier-Stokes with kernels that move
====================================

This example predicts the vorticity of a plane flow: ten snapshots go in, the next ten
come out, all at once. The model is a 3-D `FNO` over x, y and time with diffusion
layers. Flows carry things along, so the heat kernels of these layers may move. The
example shows the kernels that were learned, and how samples of a posterior over the
displacements move the flow.
"""

# %%
# Imports
# -------

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import torch
from neuralop import LpLoss
from neuralop.models import FNO
from neuralop.utils import count_model_params

from dinozaur_no import (
    BayesianDiffusionConv,
    DiffusionSpectralConv,
    VariationalOperator,
    parameter_groups,
    warm_start,
)
from dinozaur_no.plots import plot_kernels

torch.manual_seed(0)

N_TRAIN, N_TEST, N_EPOCHS, RATE = 40, 8, 20, 1e-2
N_BAYESIAN, N_SAMPLES = 5, 20

# %%
# Data
# ----
# The flow is periodic in both directions and is driven by a constant force. It starts
# from a random smooth vorticity. A pseudo-spectral method advances all flows together:
# derivatives are exact in Fourier space, products are computed on the grid, and the
# highest third of the modes is dropped, because products would alias into them. A time
# step combines Heun's method for transport and force with the exact decay by viscosity.
#
# The viscosity of 1e-3 makes the flow smoother, and easier to predict, than the 1e-5 of
# the usual benchmark.


def wavenumbers(n):
    """Return the wavenumbers of rfft2 along x and y on the unit square."""
    k_x = 2 * torch.pi * torch.fft.fftfreq(n, 1 / n)[:, None]
    k_y = 2 * torch.pi * torch.fft.rfftfreq(n, 1 / n)
    return k_x, k_y


def random_vorticity(n_flows, n):
    """Draw smooth random fields of zero mean, (n_flows, n, n)."""
    k_x, k_y = wavenumbers(n)
    spectrum = 80 * n * (k_x**2 + k_y**2 + 49) ** -1.25
    spectrum[0, 0] = 0
    return torch.fft.irfft2(spectrum * torch.fft.rfft2(torch.randn(n_flows, n, n)))


def navier_stokes(w, force, viscosity, n_snapshots, interval, steps=25):
    """Return the vorticity (flows, n, n, snapshots), a snapshot per interval."""
    n, dt = w.shape[-1], interval / steps
    k_x, k_y = wavenumbers(n)
    square = k_x**2 + k_y**2
    inverse = torch.where(square > 0, 1 / square.clamp(min=1), 0.0)
    kept = torch.maximum(k_x.abs(), k_y) < 2 * torch.pi * n / 3
    decay, force = torch.exp(-viscosity * square * dt), torch.fft.rfft2(force)

    def change(w):
        """Return the change by transport and force, in Fourier space."""
        stream = w * inverse
        u, v = torch.fft.irfft2(1j * k_y * stream), torch.fft.irfft2(-1j * k_x * stream)
        w_x, w_y = torch.fft.irfft2(1j * k_x * w), torch.fft.irfft2(1j * k_y * w)
        return force - kept * torch.fft.rfft2(u * w_x + v * w_y)

    w, snapshots = kept * torch.fft.rfft2(w), []
    for _ in range(n_snapshots):
        for _ in range(steps):
            first = change(w)
            second = change(decay * (w + dt * first))
            w = decay * (w + dt / 2 * first) + dt / 2 * second
        snapshots.append(torch.fft.irfft2(w))
    return torch.stack(snapshots, -1)


N_SOLVER = 64
x = torch.arange(N_SOLVER) / N_SOLVER
phase = 2 * torch.pi * (x[:, None] + x)
flows = navier_stokes(
    random_vorticity(N_TRAIN + N_TEST, N_SOLVER),
    force=0.1 * (phase.sin() + phase.cos()),
    viscosity=1e-3,
    n_snapshots=20,
    interval=0.5,
)

# %%
# Every second point of the grid is kept. The two halves of the time are input and
# target.

flows = flows[:, None, ::2, ::2]
x_train, x_test = flows[..., :10].split([N_TRAIN, N_TEST])
y_train, y_test = flows[..., 10:].split([N_TRAIN, N_TEST])
print(f"training inputs {tuple(x_train.shape)}, test inputs {tuple(x_test.shape)}")

# %%
# The model
# ---------
# Space is periodic and needs no padding; time is not, so it is padded. The model
# predicts the change since the last snapshot of the input, so an untrained model starts
# from a reasonable guess. Each channel has two heat kernels: one at rest, and one that
# moves by a learned displacement.

OPTIONS = {"kernels": 2, "drift": True}


def build(**options):
    """Return an FNO over x, y and time."""
    return FNO(
        n_modes=(12, 12, 6),
        in_channels=1,
        out_channels=1,
        hidden_channels=16,
        n_layers=3,
        domain_padding=[0.0, 0.0, 0.2],
        **options,
    )


model = build(conv_module=DiffusionSpectralConv.configure(**OPTIONS))


def predict(x):
    """Return the next ten snapshots."""
    return x[..., -1:] + model(x)


print(f"with diffusion layers {count_model_params(model):9} parameters")
print(f"with dense layers     {count_model_params(build()):9} parameters")

# %%
# Training
# --------

relative_l2 = LpLoss(d=3, reduction="mean")
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, max_lr=RATE, total_steps=N_EPOCHS * len(x_train.split(4))
)
for epoch in range(N_EPOCHS):
    total = 0.0
    for batch in torch.randperm(N_TRAIN).split(4):
        optimizer.zero_grad()
        loss = relative_l2(predict(x_train[batch]), y_train[batch])
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(batch) / N_TRAIN
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1:2d}: relative L2 error {total:.3f}")

# %%
# Error over time
# ---------------
# The error of flows that the model has not seen, snapshot by snapshot. For comparison:
# the error of the guess that the flow stays as it is in the last input snapshot.

with torch.no_grad():
    prediction = predict(x_test)


def error_over_time(field):
    """Return the relative error of each snapshot, averaged over the test flows."""
    error, size = (f.flatten(1, 3).norm(dim=1) for f in (field - y_test, y_test))
    return (error / size).mean(0)


of_guess = error_over_time(x_test[..., -1:].expand_as(y_test))
of_model = error_over_time(prediction)
times = [0.5 * k for k in range(11, 21)]
print("time   last input   model")
for time, guess, found in zip(times, of_guess, of_model, strict=True):
    print(f"{time:4.1f} {guess:12.3f} {found:7.3f}")

figure, axes = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
axes.plot(times, of_guess, "--", color="grey", label="last input")
axes.plot(times, of_model, marker="o", markersize=4, label="model")
axes.set(xlabel="time", ylabel="relative L2 error, test flows", ylim=(0, None))
axes.legend()
plt.show()

# %%
# The first test flow
# -------------------
# Each column has its own colour scale, shared by truth, prediction and error. Forty
# flows are few: the usual benchmark has a thousand.

SHOWN = (0, 3, 6, 9)
figure, panels = plt.subplots(3, len(SHOWN), figsize=(9.5, 7.6), layout="constrained")
for column, k in zip(panels.T, SHOWN, strict=True):
    truth, found = y_test[0, 0, ..., k], prediction[0, 0, ..., k]
    limit = truth.abs().max()
    rows = {"truth": truth, "prediction": found, "error": found - truth}
    for axes, (title, field) in zip(column, rows.items(), strict=True):
        image = axes.imshow(
            field.T.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, origin="lower"
        )
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{title}, time {times[k]}", fontsize="medium")
    figure.colorbar(image, ax=column, orientation="horizontal", label="vorticity")
plt.show()

# %%
# The kernels
# -----------
# A kernel is a Gaussian in space and time. Each circle is one kernel: its radius is the
# width of the Gaussian, and an arrow leads to it from the origin. Both are shares of
# the periodic box.

figure = plot_kernels(model, axes=(0, 1))
plt.show()

# %%
# Samples that move
# -----------------
# `BayesianDiffusionConv` learns a distribution over the times and displacements. It
# starts from the trained weights and is trained for a few more epochs with the evidence
# lower bound.

bayesian = build(conv_module=BayesianDiffusionConv.configure(**OPTIONS))
operator = warm_start(VariationalOperator(bayesian), model)
optimizer = torch.optim.AdamW(parameter_groups(operator, lr=RATE / 10))
for _ in range(N_BAYESIAN):
    for batch in torch.randperm(N_TRAIN).split(4):
        x, change = x_train[batch], y_train[batch] - x_train[batch][..., -1:]
        optimizer.zero_grad()
        operator.loss(operator(x), change, num_data=N_TRAIN).backward()
        optimizer.step()

last = x_test[:1, ..., -1:]
samples = last + operator.sample(x_test[:1], n_samples=N_SAMPLES)
print(f"standard deviation of the samples {samples.std(0).mean():.4f}")
print(f"their error                       {(samples.mean(0) - y_test[:1]).std():.4f}")

# %%
# Lines of equal vorticity in the last snapshot, one for each sample. The samples vary
# far less than the error, so their differences from the mean are drawn ten times as
# large. They differ in where things are, not only in how sharp they are.
#
# Beside them, one layer moves a bump. The posterior of its displacement is set by hand,
# and it is wider along x than along y.

layer = BayesianDiffusionConv(1, 1, (24, 24), drift=True, gradient_features=False)
layer.diffusion_time = 1e-6
layer.displacement = [[0.25, 0.0]]
layer.posterior_scale_tril = torch.diag(torch.tensor([1e-3, 0.06, 0.02]))
place = torch.arange(48) / 48
bump = torch.exp(-60 * ((place[:, None] - 0.25) ** 2 + (place - 0.5) ** 2))
moved = VariationalOperator(layer).sample(bump[None, None], n_samples=N_SAMPLES)

truth = y_test[0, 0, ..., -1]
centre = samples.mean(0)
shown = (centre + 10 * (samples - centre))[:, 0, 0, ..., -1]
figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
for axes, fields, reference, height, title in (
    (panels[0], shown, truth, truth.abs().max() / 2, "vorticity, last snapshot"),
    (panels[1], moved[:, 0, 0], bump, 0.5, "one layer moves a bump"),
):
    for field in fields:
        axes.contour(field.T, [float(height)], colors="C0", linewidths=0.6, alpha=0.6)
    axes.contour(reference.T, [float(height)], colors="black", linewidths=1.6)
    axes.set(xticks=[], yticks=[], aspect="equal", title=title)
    axes.plot([], [], color="C0", label="samples")
for axes, name in zip(panels, ("truth", "input"), strict=True):
    axes.plot([], [], color="black", label=name)
    axes.legend(loc="upper right")
plt.show()
