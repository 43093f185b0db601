"""What a model gets of a raw sample: its keywords, and the target ``y``."""

import math

import numpy as np
import torch
from torch import Tensor

from benchmarks.data.ahmed import AHMED
from benchmarks.data.bodies import Family
from benchmarks.data.car import CAR
from benchmarks.data.darcy import check_grid
from benchmarks.data.dataset import Item, RawSample
from benchmarks.data.signed_distance import grid_points
from dinozaur_no.gno import RadiusSearch


def darcy_item(sample: RawSample, *, stride: int = 1) -> Item:
    """Permeability and pressure as input and target of a model.

    Parameters
    ----------
    sample : mapping
        ``coeff`` and ``sol`` of shape (size, size), of a generated or a public file.
    stride : int, default 1
        Keep every ``stride``-th node; must divide ``size - 1``.

    Returns
    -------
    dict
        ``x`` and ``y``, float32, of shape (1, points, points) with
        ``points = (size - 1) // stride + 1``.
    """
    check_grid(size=len(sample["coeff"]), stride=stride)
    coeff, sol = (
        # A copy, as torch takes no view of an array that cannot be written to
        torch.from_numpy(sample[key][None, ::stride, ::stride].astype(np.float32))
        for key in ("coeff", "sol")
    )
    return {"x": coeff, "y": sol}


def navier_stokes_item(sample: RawSample) -> Item:
    """Input and target of one flow: the first half of its records, and the second.

    Parameters
    ----------
    sample : mapping
        ``u`` of shape (n1, n2, records), the vorticity at an even number of records.

    Returns
    -------
    dict
        ``x`` (4, n1, n2, records / 2): vorticity, the two coordinates in [0, 2 pi), and
        time 0, 1, ...; ``y`` (1, n1, n2, records / 2).
    """
    u = torch.from_numpy(sample["u"])
    if u.ndim != 3 or u.shape[-1] % 2 or not u.shape[-1]:
        raise ValueError(
            f"u (of shape {tuple(u.shape)}) must have two axes of space and an even "
            "number of records"
        )
    first, second = u.tensor_split(2, dim=-1)
    axes = [torch.arange(n, dtype=u.dtype) for n in first.shape]
    for axis in axes[:2]:
        axis.mul_(2 * math.pi / len(axis))
    coordinates = torch.meshgrid(*axes, indexing="ij")
    return {"x": torch.stack([first, *coordinates]), "y": second[None].clone()}


def car_item(sample: RawSample, *, neighbors: bool = False) -> Item:
    """Turn one car into what neuraloperator's `FNOGNO` takes.

    Parameters
    ----------
    sample : mapping
        ``vertices`` (n, 3) in the unit cube, ``pressure`` (n,), ``sdf`` (g, g, g); a
        file may bring ``in_p`` (g, g, g, 3) and ``neighbors_*`` of its own.
    neighbors : bool, default False
        Whether to search the grid points within 0.05 of each vertex as well.
        neuraloperator's `FNOGNO` finds them itself; its integral transform takes them.

    Returns
    -------
    dict
        ``in_p`` (g, g, g, 3), the grid in the unit cube; ``out_p`` (n, 3), the
        vertices in it; ``f`` (g, g, g, 1), the signed distance; ``y`` (n, 1), the
        pressure; ``neighbors_index`` and ``neighbors_row_splits`` if asked for, see
        `grid_neighbors`.
    """
    return _body_item(CAR, sample, neighbors)


def ahmed_item(sample: RawSample, *, neighbors: bool = False) -> Item:
    """Turn one Ahmed body into what neuraloperator's `FNOGNO` takes.

    Parameters
    ----------
    sample : mapping
        As for `car_item`, and the speed of the wind: ``velocity`` in m/s, or
        ``normalized_velocity``.
    neighbors : bool, default False
        Whether to search the grid points within 0.035 of each vertex as well.

    Returns
    -------
    dict
        As `car_item`, but ``f`` (g, g, g, 2) has a second channel: the speed of the
        wind, 0 for 10 m/s and 1 for 70 m/s, the same everywhere.
    """
    return _body_item(AHMED, sample, neighbors)


def _body_item(family: Family, sample: RawSample, neighbors: bool) -> Item:
    missing = {"vertices", "pressure", "sdf"} - set(sample)
    if missing:
        raise ValueError(f"sample lacks {', '.join(sorted(missing))}")
    sdf = torch.as_tensor(sample["sdf"], dtype=torch.float32)
    if sdf.ndim != 3:
        raise ValueError(
            f"sdf of sample has shape {tuple(sdf.shape)}, expected three axes: pass "
            "one sample, not a batch"
        )
    channels = [sdf]
    if family.speed is None:
        channels.append(torch.full_like(sdf, _relative_speed(family, sample)))
    in_p = sample.get("in_p")
    if in_p is None:
        in_p = grid_points(((0,) * 3, (1,) * 3), len(sdf))
    item = {
        "in_p": torch.as_tensor(in_p, dtype=torch.float32),
        "out_p": torch.as_tensor(sample["vertices"], dtype=torch.float32),
        "f": torch.stack(channels, -1),
        "y": torch.as_tensor(sample["pressure"], dtype=torch.float32)[:, None],
    }
    keys = ("neighbors_index", "neighbors_row_splits")
    if neighbors and keys[0] in sample:
        item |= {key: torch.as_tensor(sample[key]) for key in keys}
    elif neighbors:
        item |= grid_neighbors(item["in_p"], item["out_p"], family.radius)
    return item


def _relative_speed(family: Family, sample: RawSample) -> float:
    if "normalized_velocity" in sample:
        return float(sample["normalized_velocity"])
    if "velocity" not in sample:
        raise ValueError("sample lacks velocity")
    low, high = family.ranges["speed"]
    return (float(sample["velocity"]) - low) / (high - low)


def grid_neighbors(in_p: Tensor, out_p: Tensor, radius: float) -> dict[str, Tensor]:
    """Grid points within a radius of each vertex, in CSR form.

    Parameters
    ----------
    in_p : Tensor of shape (g, g, g, 3)
    out_p : Tensor of shape (n, 3)
    radius : float

    Returns
    -------
    dict
        ``neighbors_index`` into the flattened grid and ``neighbors_row_splits`` of
        shape (n + 1,), where the neighbours of each vertex begin.
    """
    found: dict[str, Tensor] = RadiusSearch()(in_p.reshape(-1, 3), out_p, radius)
    return found
