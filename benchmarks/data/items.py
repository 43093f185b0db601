"""What a model gets of a raw sample: its keywords, and the target ``y``.

Apart from the generators, whose processes need no torch to start.
"""

import numpy as np
import torch

from benchmarks.data.darcy import check_grid
from benchmarks.data.dataset import Item, RawSample


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
