"""Pressure on car-like bodies in a wind of 20 m/s, by potential flow.

Limits: see ``LIMITS`` in `benchmarks.data.generators.bodies`. The cars are invented.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.data.generators import meshes
from benchmarks.data.generators.bodies import Family, body_recipe, body_samples

VERSION = 1  # raise it with every change of the generated numbers
#: Lowest and highest values of what `car_mesh` takes.
RANGES = {
    "length": (3.6, 5.0),
    "width": (1.6, 1.95),
    "height": (1.1, 1.45),
    "clearance": (0.15, 0.25),
    "hood": (0.5, 0.65),
    "deck": (0.55, 0.8),
    "cabin_start": (0.15, 0.3),
    "cabin_end": (0.8, 1.05),
    "windscreen": (0.2, 0.3),
    "rear_screen": (0.18, 0.3),
    "nose": (0.05, 0.25),
    "tail": (0.05, 0.2),
    "tumblehome": (0.1, 0.25),
    "exponent": (3.0, 4.5),
}
#: Shorter and rounder cars than any of these, inside the same box.
OUTSIDE = RANGES | {"length": (3.0, 3.6), "exponent": (2.2, 3.0)}


def draw_parameters(
    seed: int, ranges: Mapping[str, tuple[float, float]] = RANGES
) -> dict[str, float]:
    """Draw the parameters that belong to ``seed``, uniformly and independently."""
    low, high = np.array(list(ranges.values())).T
    values = np.random.default_rng(seed).uniform(low, high)
    return dict(zip(ranges, values.tolist(), strict=True))


def car_mesh(
    parameters: Mapping[str, float], cells: meshes.Cells = meshes.CELLS
) -> tuple[meshes.Array, meshes.Triangles]:
    """Build the mesh of a car: a superellipsoid, lower before and behind a cabin.

    Parameters
    ----------
    parameters : mapping
        ``length``, ``width``, ``height`` of the body itself and its ``clearance``, in
        metres; ``hood`` and ``deck``, its height before and behind the cabin, over
        ``height``; ``cabin_start`` and ``cabin_end``, the feet of the screens, and
        ``windscreen`` and ``rear_screen``, their lengths along x, over ``length``;
        ``nose`` and ``tail``, how much the ends are narrower and lower;
        ``tumblehome``, how much the roof is narrower; ``exponent`` of the
        superellipsoid, 2 for an ellipsoid and large for a box.
    cells : three integers
        Cells of the grid along length, width and height.
    """
    p = parameters
    box, triangles = meshes.box_surface(cells)
    power = p["exponent"]
    norm = (np.abs(box) ** power).sum(1, keepdims=True) ** (1 / power)
    x, y, z = (box / norm).T
    along, up = (x + 1) / 2, (z + 1) / 2
    front = meshes.smooth_step((along - p["cabin_start"]) / p["windscreen"])
    back = meshes.smooth_step((p["cabin_end"] - along) / p["rear_screen"])
    low = p["hood"] + (p["deck"] - p["hood"]) * meshes.smooth_step(along)
    taper = 1 - np.where(x < 0, p["nose"], p["tail"]) * x**4
    top = (low + (1 - low) * front * back) * taper
    side = taper * (1 - p["tumblehome"] * up**2 * front * back)
    vertices = np.stack(
        [
            p["length"] / 2 * x,
            p["width"] / 2 * y * side,
            p["clearance"] + p["height"] * up * top,
        ],
        1,
    )
    return vertices, triangles


CAR = Family(
    name="car",
    version=VERSION,
    ranges=RANGES,
    units=dict.fromkeys(("length", "width", "height", "clearance"), "m"),
    draw=draw_parameters,
    mesh=car_mesh,
    bounds=(
        (-RANGES["length"][1] / 2, -RANGES["width"][1] / 2, 0.0),
        (
            RANGES["length"][1] / 2,
            RANGES["width"][1] / 2,
            RANGES["clearance"][1] + RANGES["height"][1],
        ),
    ),
    speed=20.0,
    sampling="uniform and independent, one generator per seed",
)
CAR_OUTSIDE = replace(
    CAR,
    name="car_outside",
    ranges=OUTSIDE,
    draw=partial(draw_parameters, ranges=OUTSIDE),
)


#: See `body_samples` and `body_recipe` in `benchmarks.data.generators.bodies`.
make_samples = partial(body_samples, CAR)
recipe = partial(body_recipe, CAR)
