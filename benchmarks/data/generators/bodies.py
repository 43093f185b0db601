"""Pressure on the surface of bodies in a wind, for cars and Ahmed bodies.

A sample is made in four steps: parameters drawn for its seed, a mesh of the body, the
potential flow around it above the ground, and the signed distance to it on a regular
grid. It depends on its seed and the settings only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.arguments import at_least
from benchmarks.data.generators.meshes import CELLS, Array, Cells, Triangles, half_body
from benchmarks.data.generators.panels import pressure_coefficient, solve_flow
from benchmarks.data.generators.signed_distance import (
    Bounds,
    grid_points,
    signed_distance,
)
from benchmarks.data.generators.surface_velocity import surface_velocity

#: Cells of the mesh on which the flow is solved: 4032 panels. On three cars and three
#: Ahmed bodies the pressure at the vertices differed by 2 to 4 % (relative L2) from
#: that of the 7168 panels of the surface mesh, in about 2 instead of 8 s; 1792 panels
#: took 0.3 s and differed by 6 to 9 %. From 13 200 panels, on one body of each kind,
#: 4032 panels differed by 4 to 5 % and 7168 by 2 %.
PANEL_CELLS: Cells = (36, 12, 12)
DENSITY = 1.2  # of air, in kg/m^3
LIMITS = (
    "Potential flow computed by source panels: the flow never separates, so that there "
    "is no wake and no drag; the air is inviscid and the pressure recovers at the "
    "rear. Edges are rounded, as the method has spikes at sharp ones, and bodies have "
    "neither wheels nor stilts."
)


@dataclass(frozen=True)
class Family:
    """A family of bodies with random parameters.

    ``bounds`` is a box, in metres, that holds every body of the family.
    """

    name: str
    version: int  # raised with every change of the generated numbers
    ranges: Mapping[str, tuple[float, float]]  # of the parameters
    units: Mapping[str, str]  # parameters without one are ratios
    draw: Callable[[int], dict[str, float]]  # the parameters of a seed
    mesh: Callable[[Mapping[str, float], Cells], tuple[Array, Triangles]]
    bounds: Bounds
    speed: float | None  # of the wind in m/s; None: it is the parameter "speed"
    sampling: str  # how parameters are drawn, in words
    constants: Mapping[str, float] = field(default_factory=dict)  # of the recipe


def body_samples(
    family: Family,
    seeds: Sequence[int],
    *,
    grid: int = 64,
    cells: Cells = CELLS,
    panel_cells: Cells = PANEL_CELLS,
) -> dict[str, NDArray[np.generic]]:
    """Compute samples of a family, one for each seed.

    ``grid`` is the number of points per axis of the grid of distances. The surface mesh
    has ``cells`` along length, width and height, the flow is solved on ``panel_cells``,
    of which the second must be even.

    Returns
    -------
    dict
        Arrays with one entry per seed, float32 but for the triangles: ``vertices``
        (n, 3586, 3), scaled axis by axis so that the common box becomes [0, 1]^3;
        ``triangles`` (n, 7168, 3), int32; ``pressure`` (n, 3586), in pascal;
        ``sdf`` (n, grid, grid, grid), in metres and negative inside; ``parameters``
        (n, p), in the order of the recipe; and ``velocity`` (n,), in m/s, where
        the wind differs between samples.
    """
    points = grid_points(family.bounds, grid)
    samples = [_sample(family, seed, points, cells, panel_cells) for seed in seeds]
    return {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}


def body_pressure(
    family: Family,
    parameters: Mapping[str, float],
    *,
    cells: Cells = CELLS,
    panel_cells: Cells = PANEL_CELLS,
) -> tuple[Array, Triangles, Array]:
    """Compute vertices (in metres), triangles and pressure coefficient of a body.

    ``cells`` may be as fine as `FINE_CELLS`: the time of the flow depends on
    ``panel_cells``.
    """
    coarse, panels = family.mesh(parameters, panel_cells)
    stream = np.array([1.0, 0.0, 0.0])  # the coefficient does not depend on the speed
    half = half_body(coarse, panels)
    flow = solve_flow(coarse, half, stream, mirrors="yz")
    vertices, triangles = family.mesh(parameters, cells)
    velocity = surface_velocity(flow, vertices, triangles)
    return vertices, triangles, pressure_coefficient(velocity, stream)


def body_recipe(
    family: Family,
    *,
    grid: int = 64,
    cells: Cells = CELLS,
    panel_cells: Cells = PANEL_CELLS,
) -> dict[str, object]:
    """List everything but the seed that a sample depends on, as JSON can hold it."""
    at_least(2, grid=grid)
    _check_cells("cells", cells)
    _check_cells("panel_cells", panel_cells)
    if panel_cells[1] % 2:
        raise ValueError(
            f"panel_cells (={panel_cells}) must have an even number across: only half "
            "of the symmetric body is solved"
        )
    return {
        "name": family.name,
        "version": family.version,
        "grid": grid,
        "cells": list(cells),
        "panel_cells": list(panel_cells),
        "bounds": [list(corner) for corner in family.bounds],
        "parameters": [
            [name, *ends, family.units.get(name, "")]
            for name, ends in family.ranges.items()
        ],
        "sampling": family.sampling,
        "speed": "a parameter" if family.speed is None else family.speed,
        "density": DENSITY,
        "limits": LIMITS,
        **family.constants,
    }


def _sample(
    family: Family, seed: int, points: Array, cells: Cells, panel_cells: Cells
) -> dict[str, NDArray[np.generic]]:
    parameters = family.draw(seed)
    vertices, triangles, cp = body_pressure(
        family, parameters, cells=cells, panel_cells=panel_cells
    )
    speed = parameters["speed"] if family.speed is None else family.speed
    low, high = np.array(family.bounds)
    arrays: dict[str, NDArray[np.generic]] = {
        "vertices": ((vertices - low) / (high - low)).astype(np.float32),
        "triangles": triangles.astype(np.int32),
        "pressure": (cp * DENSITY * speed**2 / 2).astype(np.float32),
        "sdf": signed_distance(vertices, triangles, points).astype(np.float32),
        "parameters": np.array(list(parameters.values()), dtype=np.float32),
    }
    if family.speed is None:
        arrays["velocity"] = np.array(speed, dtype=np.float32)
    return arrays


def _check_cells(name: str, cells: Cells) -> None:
    if len(cells) != 3 or min(cells) < 1:
        raise ValueError(f"{name} (={cells}) must be three numbers of at least 1")
