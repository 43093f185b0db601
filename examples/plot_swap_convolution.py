"""
Replace the convolution of an FNO
=================================

This example trains two operators for Darcy flow: neuraloperator's `FNO` as it is, and
the same `FNO` with ``conv_module=DiffusionSpectralConv``. Everything else is equal.
neuraloperator's `Trainer` trains both and writes checkpoints. The restored models then
predict on a grid that is twice as fine as the grid of the training data.
"""

# %%
# Imports
# -------

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from neuralop import H1Loss, LpLoss
from neuralop.data.transforms.data_processors import DefaultDataProcessor
from neuralop.data.transforms.normalizers import UnitGaussianNormalizer
from neuralop.models import FNO
from neuralop.training import AdamW, Trainer
from neuralop.utils import count_model_params
from scipy import fft, sparse
from scipy.sparse.linalg import spsolve
from torch.utils.data import DataLoader

from dinozaur_no import DiffusionSpectralConv

N_TRAIN, N_TEST, N_EPOCHS, RATE = 160, 32, 21, 4e-3

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
# The equation is solved on 61 x 61 nodes. The fine grid has all of them, the coarse
# grid every second one, so both show the same solutions. The last node of each axis is
# left out: a Fourier layer takes its grid as periodic, and this way both grids cover
# the same periodic box.

fields = np.stack([darcy_flow(seed, 61) for seed in range(N_TRAIN + N_TEST)])
x, y = torch.from_numpy(fields[:, :, None, :-1, :-1]).float().unbind(1)


def items(part, stride):
    """Return some of the fields in the form that `Trainer` takes."""
    pairs = zip(x[part], y[part], strict=True)
    return [
        {"x": a[:, ::stride, ::stride], "y": u[:, ::stride, ::stride]} for a, u in pairs
    ]


train = items(slice(N_TRAIN), stride=2)
tests = {stride: items(slice(N_TRAIN, None), stride) for stride in (2, 1)}

# %%
# The processor scales inputs and targets for training. For evaluation it brings
# predictions back to physical units.

normalizers = [UnitGaussianNormalizer(dim=[0, 2, 3]) for _ in "xy"]
for normalizer, field in zip(normalizers, (x, y), strict=True):
    normalizer.fit(field[:N_TRAIN, :, ::2, ::2])
processor = DefaultDataProcessor(*normalizers)

# %%
# Two models
# ----------
# The dense layer holds one complex matrix of width x width for each mode. The diffusion
# layer holds one diffusion time per channel and a few real matrices of that size,
# however many modes there are.


def build(**options):
    """Return an FNO, built with the same random seed each time."""
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

# %%
# Training
# --------
# `Trainer` keeps the checkpoint with the smallest error on the coarse test fields. A
# serious comparison would choose it on separate validation fields. `Trainer` passes
# inputs and targets to model and losses alike, which causes harmless warnings.

folder = tempfile.TemporaryDirectory()
for name, model in models.items():
    optimizer = AdamW(model.parameters(), lr=RATE, weight_decay=1e-4)
    trainer = Trainer(
        model=model,
        n_epochs=N_EPOCHS,
        data_processor=processor,
        eval_interval=5,
    )
    result = trainer.train(
        train_loader=DataLoader(train, batch_size=16, shuffle=True),
        test_loaders={"coarse": DataLoader(tests[2], batch_size=16)},
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, N_EPOCHS),
        training_loss=H1Loss(d=2),
        eval_losses={"l2": LpLoss(d=2)},
        save_best="coarse_l2",
        save_dir=Path(folder.name, name),
    )
    print(f"{name}: last epoch {result['epoch_train_time']:.1f} s")

# %%
# Restore the best checkpoints
# ----------------------------
# A checkpoint names the class of its layers and their options, so there is nothing to
# build by hand. It holds pickled objects: load only files that you trust.

restored = {
    name: FNO.from_checkpoint(Path(folder.name, name), "best_model").eval()
    for name in models
}
folder.cleanup()
print(restored["DiffusionSpectralConv"].fno_blocks.convs[0])

# %%
# Test errors on both grids
# -------------------------
# No model has seen a fine field before. Modes, times and weights describe functions, so
# they mean the same on every grid.
#
# This is one short run with one random seed and few fields. Another learning rate
# can reverse the order of the two models.

processor.eval()
relative_l2 = LpLoss(d=2, reduction="mean")


@torch.no_grad()
def predict(model, data):
    """Return predictions of all fields in physical units, and the targets."""
    batch = processor.preprocess(next(iter(DataLoader(data, batch_size=len(data)))))
    output, batch = processor.postprocess(model(batch["x"]), batch)
    return output, batch["y"]


predictions = {
    (name, stride): predict(model, data)
    for name, model in restored.items()
    for stride, data in tests.items()
}
print(f"{'':22}{'parameters':>12}{'30 x 30':>10}{'60 x 60':>10}")
for name, model in restored.items():
    errors = [relative_l2(*predictions[name, stride]).item() for stride in tests]
    print(f"{name:22}{count_model_params(model):12}{errors[0]:10.4f}{errors[1]:10.4f}")

# %%
# The first test field. The upper row shows the grid of the training data, the lower row
# the grid that is twice as fine. All errors share one colour scale.

largest = max(
    (found[0] - truth[0]).abs().max() for found, truth in predictions.values()
)
figure, rows = plt.subplots(2, 5, figsize=(13, 5.2), layout="constrained")
for row, (stride, data) in zip(rows, tests.items(), strict=True):
    truth = data[0]["y"][0]
    dense, diffusion = (predictions[name, stride][0][0, 0] for name in restored)
    pressure = {"vmin": 0, "vmax": truth.max()}
    error = {"cmap": "magma", "vmin": 0, "vmax": largest}
    panels = {
        "permeability": (data[0]["x"][0], {"cmap": "Greys"}),
        f"pressure, {len(truth)} x {len(truth)}": (truth, pressure),
        "prediction, diffusion": (diffusion, pressure),
        "|error|, diffusion": ((diffusion - truth).abs(), error),
        "|error|, dense": ((dense - truth).abs(), error),
    }
    for axes, (title, (field, style)) in zip(row, panels.items(), strict=True):
        image = axes.imshow(
            field.T.numpy(), origin="lower", extent=(0, 1, 0, 1), **style
        )
        axes.set_title(title, fontsize="medium")
        axes.set(xticks=[0, 1], yticks=[0, 1])
        figure.colorbar(image, ax=axes, shrink=0.8)
plt.show()
