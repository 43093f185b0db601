"""
Diffusion convolution
=====================

``DiffusionSpectralConv`` replaces the dense spectral weights of an FNO by the heat
kernel. Every channel diffuses for a learned time, gradient features add what diffusion
alone cannot express, and one matrix mixes the channels. The number of parameters does
not depend on the number of modes.
"""

# %%
# One layer, without mixing: four channels with the same input and four times.

import matplotlib.pyplot as plt
import torch
from neuralop.layers.diffusion_convolution import DiffusionSpectralConv
from neuralop.models import DINOZAUR, FNO
from neuralop.utils import count_model_params

torch.manual_seed(0)
layer = DiffusionSpectralConv(4, 4, (48, 48), gradient_features=False)
x = (torch.rand(1, 1, 8, 8) > 0.5).float()
x = x.repeat_interleave(8, -1).repeat_interleave(8, -2).expand(1, 4, 64, 64)
with torch.no_grad():
    y = layer(x)

figure, axes = plt.subplots(1, 5, figsize=(12, 3))
axes[0].imshow(x[0, 0])
axes[0].set_title("input")
for ax, field, time in zip(axes[1:], y[0], layer.diffusion_time.tolist()):
    ax.imshow(field)
    ax.set_title(f"time {time:.0e}")
for ax in axes:
    ax.axis("off")
plt.show()

# %%
# The output grid can be another one. Both outputs agree at common points.

with torch.no_grad():
    fine = layer(x, output_shape=(128, 128))
print((fine[..., ::2, ::2] - y).abs().max())

# %%
# A whole model. Parameters are few, and more modes do not add any.

for n_modes in (8, 16, 32):
    dense = FNO((n_modes, n_modes), 1, 1, 32)
    diffusion = DINOZAUR((n_modes, n_modes), 1, 1, 32)
    print(n_modes, count_model_params(dense), count_model_params(diffusion))
