"""Pressure on Ahmed bodies in winds of 10 to 70 m/s, by potential flow.

Limits: see ``LIMITS`` in `benchmarks.data.generators.bodies`. Potential flow lacks the
wake behind the slant, for which the body is known.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.data.generators import meshes
from benchmarks.data.generators.bodies import Family, body_recipe, body_samples

VERSION = 1  # raise it with every change of the generated numbers
#: Samples in a Latin hypercube.
BLOCK = 64
#: Lowest and highest values: lengths in mm, the angle in degrees, the speed in m/s.
RANGES = {
    "length": (644.0, 1444.0),
    "width": (239.0, 539.0),
    "height": (208.0, 368.0),
    "clearance": (30.0, 90.0),
    "slant": (0.0, 40.0),
    "radius": (80.0, 120.0),
    "speed": (10.0, 70.0),
}
#: Shorter bodies with a steeper slant than any of these, inside the same box.
OUTSIDE = RANGES | {"length": (500.0, 644.0), "slant": (40.0, 50.0)}
UNITS = dict.fromkeys(("length", "width", "height", "clearance", "radius"), "mm")
UNITS |= {"slant": "degrees", "speed": "m/s"}
#: Radius of the edges that are sharp on the real body, and length of its slanted face.
EDGE_RADIUS, SLANT_LENGTH = 0.04, 0.222  # metres
#: Part of the width or height that a rounding may take on one side at most.
LARGEST_ROUNDING = 0.48


def latin_hypercube(block: int) -> meshes.Array:
    """Points of shape (64, 7) in the unit cube, one in each 64th of every axis."""
    rng = np.random.default_rng(block)
    strata = rng.permuted(np.tile(np.arange(BLOCK), (len(RANGES), 1)), axis=1).T
    points: meshes.Array = (strata + rng.random(strata.shape)) / BLOCK
    return points


def draw_parameters(
    seed: int, ranges: Mapping[str, tuple[float, float]] = RANGES
) -> dict[str, float]:
    """Draw the parameters that belong to ``seed``.

    The seeds 0 to 63 make a Latin hypercube, the seeds 64 to 127 the next, and so on:
    a body does not depend on the number of samples, as it would in a single hypercube.
    """
    low, high = np.array(list(ranges.values())).T
    values = low + (high - low) * latin_hypercube(seed // BLOCK)[seed % BLOCK]
    return dict(zip(ranges, values.tolist(), strict=True))


def ahmed_mesh(
    parameters: Mapping[str, float], cells: meshes.Cells = meshes.CELLS
) -> tuple[meshes.Array, meshes.Triangles]:
    """Build the mesh of an Ahmed body: a box with a round front and slanted rear.

    The front edges have the given radius, but at most 48 % of the height and width.
    The other edges, sharp on the real body, have a radius of 40 mm; along the sides it
    grows to that of the front. The upper end of the slant is rounded as well.

    Vertices (n, 3) are in metres; there are 2 n - 4 triangles. ``cells`` counts the
    cells of the grid along length, width and height.
    """
    length, width, height, clearance, radius = (
        parameters[name] / 1000
        for name in ("length", "width", "height", "clearance", "radius")
    )
    box, triangles = meshes.box_surface(cells)
    half = np.array([length, width, height]) / 2
    # Cells are smaller near the edges, where the surface bends.
    place = half * (box + 0.4 / np.pi * np.sin(np.pi * box))
    radius = min(radius, LARGEST_ROUNDING * min(width, height))
    edge = min(EDGE_RADIUS, radius)

    behind = (place[:, 0] + half[0] - radius) / radius
    across = radius + (edge - radius) * meshes.smooth_step(behind / 3)
    ends = np.where(place[:, 0] < 0, radius, edge)
    rounding = np.stack([ends, across, across], 1)
    core = np.clip(place, rounding - half, half - rounding)
    # From the core outwards by quarter circles; core and place differ everywhere.
    offset = (place - core) / rounding
    offset /= np.linalg.norm(offset, axis=1, keepdims=True)
    vertices = core + rounding * offset

    slant = np.deg2rad(parameters["slant"])
    behind = vertices[:, 0] - (half[0] - SLANT_LENGTH * np.cos(slant))
    drop = np.tan(slant) * EDGE_RADIUS * np.logaddexp(0, behind / EDGE_RADIUS)
    vertices[:, 2] = (vertices[:, 2] + half[2]) * (1 - drop / height) + clearance
    return vertices, triangles


AHMED = Family(
    name="ahmed",
    version=VERSION,
    ranges=RANGES,
    units=UNITS,
    draw=draw_parameters,
    mesh=ahmed_mesh,
    bounds=(
        (-RANGES["length"][1] / 2000, -RANGES["width"][1] / 2000, 0.0),
        (
            RANGES["length"][1] / 2000,
            RANGES["width"][1] / 2000,
            (RANGES["clearance"][1] + RANGES["height"][1]) / 1000,
        ),
    ),
    speed=None,
    constants={"edge_radius": EDGE_RADIUS, "slant_length": SLANT_LENGTH},
    sampling=f"consecutive Latin hypercubes of {BLOCK} seeds",
)
AHMED_OUTSIDE = replace(
    AHMED,
    name="ahmed_outside",
    ranges=OUTSIDE,
    draw=partial(draw_parameters, ranges=OUTSIDE),
)


#: See `body_samples` and `body_recipe` in `benchmarks.data.generators.bodies`.
make_samples = partial(body_samples, AHMED)
recipe = partial(body_recipe, AHMED)
