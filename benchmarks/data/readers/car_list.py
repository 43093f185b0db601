"""Cars in a torch file: neuraloperator's ``mini_car.pt``.

The file is a list with one dictionary of tensors per car. The vertices are in the unit
cube and the pressure is scaled. ``distance``, here ``sdf``, is between 0 and 1 without
a sign, and is not the distance between the grid points and the vertices of the file.
"""

from pathlib import Path

import numpy as np

from benchmarks.data.readers import base

SHAPES: dict[str, tuple[int | str, ...]] = {
    "vertices": ("v", 3),
    "press": (1, "v"),
    "distance": ("g", "g", "g", 1),
    "query_points": ("g", "g", "g", 3),
}


class CarList(base.FileSource):
    """Cars of a list in a torch file, in memory."""

    def __init__(self, path: Path) -> None:
        self.cars = base.load_torch(path, list)
        if not all(isinstance(car, dict) for car in self.cars):
            raise ValueError(f"{path} is a list, but not of dictionaries of tensors")
        super().__init__(path, len(self.cars))

    def __getitem__(self, index: int) -> base.Arrays:
        car = {key: np.asarray(values) for key, values in self.cars[index].items()}
        base.check_shapes(self.path, car, SHAPES)
        found = {key: base.to_float(self.path, key, car[key]) for key in SHAPES}
        return {
            "vertices": found["vertices"],
            "pressure": found["press"][0],
            "sdf": found["distance"][..., 0],
            "in_p": found["query_points"],
        }
