"""Items of raw samples: the keywords of a model, and the target ``y``."""

import math

import numpy as np
import torch

from benchmarks.data.generators.ahmed import RANGES as AHMED_RANGES
from benchmarks.data.generators.darcy import check_stride
from benchmarks.data.generators.signed_distance import UNIT_CUBE, grid_points
from benchmarks.data.splits import Item, RawSample


def darcy_item(sample: RawSample, *, stride: int = 1) -> Item:
    """Make permeability and pressure the input and target of a model.

    ``coeff`` and ``sol`` of shape (size, size), or of a cube, become ``x`` and ``y``
    of shape (1, points, points) with every ``stride``-th node, which must divide
    ``size - 1``.
    """
    check_stride(len(sample["coeff"]), stride)
    every = (slice(None, None, stride),) * sample["coeff"].ndim
    coeff, sol = (
        # A copy, as torch takes no view of an array that cannot be written to
        torch.from_numpy(sample[key][every][None].astype(np.float32))
        for key in ("coeff", "sol")
    )
    return {"x": coeff, "y": sol}


def navier_stokes_item(sample: RawSample) -> Item:
    """Make the first half of the records the input, and the second half the target.

    ``u`` has the shape (n1, n2, records). The channels of ``x``, of shape (4, n1, n2,
    records / 2), are vorticity, the two coordinates in [0, 2 pi), and time 0, 1, ...;
    ``y`` is the vorticity, of shape (1, n1, n2, records / 2).
    """
    u = torch.from_numpy(sample["u"])
    if u.shape[-1] % 2:
        raise ValueError(f"the number of records (={u.shape[-1]}) must be even")
    first, second = u.tensor_split(2, dim=-1)
    axes = [torch.arange(n, dtype=u.dtype) for n in first.shape]
    for axis in axes[:2]:
        axis.mul_(2 * math.pi / len(axis))
    coordinates = torch.meshgrid(*axes, indexing="ij")
    return {"x": torch.stack([first, *coordinates]), "y": second[None].clone()}


def car_item(sample: RawSample) -> Item:
    """Make one car the input and target of neuraloperator's `FNOGNO`.

    The sample has ``vertices`` (n, 3) in the unit cube, ``pressure`` (n,), ``sdf``
    (g, g, g) and, unless the grid is the regular one of the unit cube, ``in_p``
    (g, g, g, 3). The item has the grid ``in_p``, the vertices ``out_p``, the signed
    distance ``f`` (g, g, g, 1) and the pressure ``y`` (n, 1).
    """
    sdf = torch.as_tensor(sample["sdf"], dtype=torch.float32)
    in_p = sample.get("in_p")
    if in_p is None:
        in_p = grid_points(UNIT_CUBE, len(sdf))
    return {
        "in_p": torch.as_tensor(in_p, dtype=torch.float32),
        "out_p": torch.as_tensor(sample["vertices"], dtype=torch.float32),
        "f": sdf[..., None],
        "y": torch.as_tensor(sample["pressure"], dtype=torch.float32)[:, None],
    }


def ahmed_item(sample: RawSample) -> Item:
    """Make one Ahmed body the input and target of neuraloperator's `FNOGNO`.

    As `car_item`, but ``f`` (g, g, g, 2) has a second channel: the speed of the wind, 0
    for 10 m/s and 1 for 70 m/s, the same everywhere. The sample has it as ``velocity``
    in m/s, or scaled as ``normalized_velocity``.
    """
    if "normalized_velocity" in sample:
        speed = float(sample["normalized_velocity"])
    else:
        low, high = AHMED_RANGES["speed"]
        speed = (float(sample["velocity"]) - low) / (high - low)
    item = car_item(sample)
    distance = item["f"]
    return item | {"f": torch.cat([distance, torch.full_like(distance, speed)], -1)}


def step_item(sample: RawSample) -> Item:
    """Make a state the input, and the next state of its trajectory the target.

    Both have the shape (channels, points...): ``x`` is ``before``, ``y`` is ``after``.
    """
    return {
        "x": torch.from_numpy(sample["before"]),
        "y": torch.from_numpy(sample["after"]),
    }
