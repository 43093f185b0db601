"""
Deployment: compiler and ONNX
=============================

The diffusion layer computes with real numbers and matrix products only. So
`torch.compile` can compile a model as a whole, and the model can be exported to ONNX,
which has no complex numbers. This example does both and compares the outputs. It needs
the packages onnx, onnxscript and onnxruntime.
"""

# %%
# Imports
# -------

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from neuralop.models import FNO

from dinozaur_no import DiffusionSpectralConv

torch.manual_seed(0)

# %%
# A model
# -------
# Random weights are enough, because the same model is compared in different forms.

N_LAYERS, BATCH = 3, 8
model = FNO(
    n_modes=(12, 12),
    in_channels=1,
    out_channels=1,
    hidden_channels=32,
    n_layers=N_LAYERS,
    conv_module=DiffusionSpectralConv,
).eval()
x = torch.randn(BATCH, 1, 48, 48)
with torch.no_grad():
    expected = model(x)


def seconds(function, *arguments):
    """Return the median time of ten calls, after one that does not count."""
    function(*arguments)
    laps = []
    for _ in range(10):
        start = time.perf_counter()
        function(*arguments)
        laps.append(time.perf_counter() - start)
    return statistics.median(laps)


rows = []


def add(name, output, duration):
    """Note the largest difference from the model, and the time of a call."""
    difference = np.abs(np.asarray(output) - expected.numpy()).max()
    rows.append((name, difference / expected.abs().max().item(), duration))


with torch.no_grad():
    add("model itself", model(x), seconds(model, x))

# %%
# The compiler
# ------------
# With ``fullgraph=True`` torch raises an error if it cannot compile some part. The
# default backend generates C++ code. Without a C++ compiler this step is skipped.

BACKEND = "inductor"
compilers = (os.environ.get("CXX", ""), "g++", "clang++", "cl")
if any(shutil.which(name) for name in compilers):
    compiled = torch.compile(model, fullgraph=True, backend=BACKEND)
    with torch.no_grad():
        add("torch.compile", compiled(x), seconds(compiled, x))
else:
    print("no C++ compiler found: torch.compile is skipped")

# %%
# Export to ONNX
# --------------
# Grid and channels are fixed in the file. The batch size stays free.

folder = tempfile.TemporaryDirectory()
path = Path(folder.name)
program = torch.onnx.export(
    model,
    (x,),
    dynamo=True,
    verbose=False,
    input_names=["x"],
    output_names=["y"],
    dynamic_shapes=({0: torch.export.Dim("batch")},),
)
program.save(path / "model.onnx")
print(f"{(path / 'model.onnx').stat().st_size} bytes")

# %%
# Run without torch
# -----------------
# A second process, which never imports torch, reads the file and computes the output.

RUN = """
import statistics, sys, time
import numpy as np, onnxruntime

folder, threads = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(threads)
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options)
x = np.load(f"{folder}/x.npy")
laps = []
for _ in range(11):
    start = time.perf_counter()
    (y,) = session.run(None, {"x": x})
    laps.append(time.perf_counter() - start)
assert "torch" not in sys.modules
np.save(f"{folder}/y.npy", y)
print(statistics.median(laps[1:]))
"""
np.save(path / "x.npy", x.numpy())
done = subprocess.run(
    [sys.executable, "-c", RUN, folder.name, str(torch.get_num_threads())],
    stdout=subprocess.PIPE,
    text=True,
    check=True,
)
add("onnxruntime", np.load(path / "y.npy"), float(done.stdout))
folder.cleanup()

# %%
# All agree
# ---------
# The first column is the largest difference from the model itself, relative to the
# largest value of the output.

print(f"{'':16}{'difference':>14}{'ms per batch':>14}")
for name, difference, duration in rows:
    print(f"{name:16}{difference:14.1e}{1e3 * duration:14.1f}")
assert all(difference < 1e-4 for _, difference, _ in rows)
