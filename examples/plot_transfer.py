"""
From two dimensions to three
============================

Samples of problems in three dimensions are expensive. The parameters of diffusion
layers do not depend on the dimension, so a model can learn from cheap problems in two
dimensions first. `carry_over` copies its weights into a model of three dimensions. This
example trains on Darcy flow in a square, carries the weights over to a cube, and
continues with a few samples there. A model that starts from scratch gets the same
samples and steps.
"""

# %%
# Imports
# -------

import tempfile

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.fft import idctn
from scipy.sparse import diags_array, eye_array, kron
from scipy.sparse.linalg import spsolve

from dinozaur_no import DINOZAUR, carry_over, load_pretrained, save_pretrained

N_FLAT, N_SOLID, N_TEST, N_POINTS = 256, 16, 16, 14
N_EPOCHS_FLAT, N_EPOCHS_SOLID = 20, 30
RATE, BATCH = 1e-2, 4

# %%
# Data
# ----
# The permeability a is 12 or 3, by the sign of a smooth random field. The pressure u
# solves -div(a grad u) = 1 with u = 0 on the boundary, by finite differences. The same
# function makes squares and cubes.


def darcy_flow(seed, n, d):
    """Return permeability and pressure on n nodes along each of d axes."""
    k = np.indices((n,) * d)
    noise = np.random.default_rng(seed).standard_normal((n,) * d)
    noise /= np.pi**2 * (k**2).sum(0) + 9
    noise[(0,) * d] = 0
    a = np.where(idctn(noise, norm="ortho") >= 0, 12.0, 3.0)

    slope = diags_array([-1.0, 1.0], offsets=[0, 1], shape=(n - 1, n))  # to faces
    inner = eye_array(n, format="csr")[1:-1]
    matrix = 0
    for axis in range(d):
        difference = mean = eye_array(1)
        for j in range(d):
            difference = kron(difference, slope if j == axis else inner)
            mean = kron(mean, abs(slope) / 2 if j == axis else inner)
        faces = diags_array(mean @ a.ravel())
        matrix = matrix + difference.T @ faces @ difference * (n - 1) ** 2
    inside = np.zeros((n,) * d, dtype=bool)
    inside[(slice(1, -1),) * d] = True
    rows = inside.ravel()
    u = np.zeros((n,) * d)
    u[inside] = spsolve(matrix.tocsc()[rows][:, rows], np.ones(rows.sum()))
    return a, u


def problem(seeds, d):
    """Return scaled permeabilities and pressures as tensors (b, 1, *grid)."""
    pairs = [darcy_flow(seed, N_POINTS, d) for seed in seeds]
    fields = torch.tensor(np.array(pairs), dtype=torch.float32)
    a, u = fields[:, None].unbind(2)
    scale = {2: 6e-3, 3: 4e-3}[d]  # about the mean pressure
    return (a - 7.5) / 4.5, u / scale


flat_data = problem(range(N_FLAT), 2)
solid_data = problem(range(N_SOLID), 3)
test_data = problem(range(10_000, 10_000 + N_TEST), 3)

# %%
# Two dimensions
# --------------
# One training loop serves all models. It returns the test error after each epoch.


def relative_l2(found, truth):
    """Return the relative error, on average over the fields."""
    error = (found - truth).flatten(1).norm(dim=1)
    return (error / truth.flatten(1).norm(dim=1)).mean()


def train(model, data, n_epochs, batch, test=None):
    """Train a model; return its test error after each epoch."""
    torch.manual_seed(0)
    x, y = data
    optimizer = torch.optim.AdamW(model.parameters())
    steps = n_epochs * len(x.split(batch))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    errors = []
    for _ in range(n_epochs):
        for part in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            relative_l2(model(x[part]), y[part]).backward()
            optimizer.step()
            scheduler.step()
        if test is not None:
            with torch.no_grad():
                errors.append(relative_l2(model(test[0]), test[1]).item())
    return errors


torch.manual_seed(0)
flat = DINOZAUR((6, 6), in_channels=1, out_channels=1, hidden_channels=16)
train(flat, flat_data, N_EPOCHS_FLAT, 16)

# %%
# `save_pretrained` writes the weights and a text that says how the model was built.
# `load_pretrained` builds it again. It runs no code of the folder.

with tempfile.TemporaryDirectory() as folder:
    save_pretrained(flat, folder)
    flat = load_pretrained(folder)

# %%
# Three dimensions
# ----------------
# Weights of the third coordinate are new. By default they are zero: the solid model is
# then the flat one on fields that do not change along the new axis.

models = {}
for name in ("from scratch", "carried over"):
    torch.manual_seed(1)
    models[name] = DINOZAUR((6, 6, 6), 1, 1, 16)
carry_over(flat, models["carried over"])

x = flat_data[0][:2]
with torch.no_grad():
    thick = x[..., None].expand(-1, -1, -1, -1, N_POINTS)
    difference = models["carried over"](thick) - flat(x)[..., None]
print(f"largest difference: {difference.abs().max():.1e}")

# %%
# Now the model has to learn what happens along the new axis. Up and down are alike in
# this problem, so the loss does not say in which direction weights of zero should go.
# Random ones find out much faster: ``new_inputs="keep"`` leaves those that the model
# was built with. The report says what was copied and what is new.

torch.manual_seed(1)
models["carried over"] = DINOZAUR((6, 6, 6), 1, 1, 16)
print(carry_over(flat, models["carried over"], new_inputs="keep"))

errors = {
    name: train(model, solid_data, N_EPOCHS_SOLID, BATCH, test_data)
    for name, model in models.items()
}
for name, course in errors.items():
    print(f"{name}: test error {course[-1]:.3f} after {N_EPOCHS_SOLID} epochs")

figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, course in errors.items():
    axis.semilogy(range(1, len(course) + 1), course, label=name)
axis.set(xlabel="epoch", ylabel="relative L2 error, test")
axis.legend()

# %%
# A test sample
# -------------
# The middle plane of the cube. This is one short run with one random seed; the page on
# transfer has three seeds and more samples.

with torch.no_grad():
    found = {name: model(test_data[0][:1])[0, 0] for name, model in models.items()}
shown = {"permeability": test_data[0][0, 0], "pressure": test_data[1][0, 0], **found}
figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained")
for axis, (name, field) in zip(axes, shown.items(), strict=True):
    image = axis.imshow(field[:, :, N_POINTS // 2].numpy().T, origin="lower")
    axis.set(title=name, xticks=[], yticks=[])
    figure.colorbar(image, ax=axis, shrink=0.8)
plt.show()
