"""Trajectories of APEBench and of a cylinder wake, as pairs of consecutive states.

Both are numpy archives. APEBench has ``train`` and ``test`` of shape (trajectory, time,
channel, point). The wake has one trajectory on the points of a 100 x 50 grid:
``U_star`` (point, 2, time), ``p_star`` (point, time), the places ``X_star`` (point, 2).
"""

from pathlib import Path

import numpy as np

from benchmarks.data.readers import base

WAKE_SHAPES: dict[str, tuple[int | str, ...]] = {
    "X_star": ("point", 2),
    "U_star": ("point", 2, "time"),
    "p_star": ("point", "time"),
}


class StatePairs(base.FileSource):
    """States and their successors, one trajectory after the other.

    A sample has ``before`` and ``after``, each of shape (channels, points...). For
    rollouts, ``states`` has whole trajectories, of shape (trajectory, time, channels,
    points...).
    """

    def __init__(self, path: Path, states: base.Array32) -> None:
        super().__init__(path, len(states) * (states.shape[1] - 1))
        self.states = states

    def __getitem__(self, index: int) -> base.Arrays:
        trajectory, time = divmod(index, self.states.shape[1] - 1)
        before, after = self.states[trajectory, time : time + 2]
        return {"before": before.copy(), "after": after.copy()}


def apebench_file(path: Path, part: str) -> StatePairs:
    """Read the trajectories ``train`` or ``test`` of APEBench."""
    arrays = base.load_numpy(path)
    base.check_shapes(path, arrays, {part: ("trajectory", "time", "channel", "point")})
    return StatePairs(path, base.to_float(path, part, arrays[part]))


def cylinder_wake_file(path: Path) -> StatePairs:
    """Read both velocities and the pressure of the wake, of shape (3, 100, 50).

    The first axis of space points along the wind, the second across it.
    """
    arrays = base.load_numpy(path)
    base.check_shapes(path, arrays, WAKE_SHAPES)
    along, across = (np.unique(x) for x in arrays["X_star"].T)
    places = np.stack(np.meshgrid(along, across), -1).reshape(-1, 2)
    if not np.array_equal(places, arrays["X_star"]):
        raise ValueError(f"{path}: 'X_star' is not a regular grid, row by row along x")
    fields = np.concatenate([arrays["U_star"], arrays["p_star"][:, None]], 1)
    states = fields.reshape(len(across), len(along), 3, -1).transpose(3, 2, 1, 0)
    return StatePairs(path, base.to_float(path, "U_star", states)[None])
