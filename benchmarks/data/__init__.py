"""Data of the benchmarks, made by built-in solvers or read from public files."""

from benchmarks.data.arguments import keywords
from benchmarks.data.datasets import (
    DATA_SETS,
    FIRST_TEST_SEED,
    data_set,
    load_splits,
)
from benchmarks.data.generators.car import CAR
from benchmarks.data.generators.darcy import darcy_fields
from benchmarks.data.generators.meshes import FINE_CELLS
from benchmarks.data.splits import FieldProcessor, Item, OperatorDataset, Splits
from benchmarks.data.store import CACHE_DIR

__all__ = [
    "CACHE_DIR",
    "CAR",
    "DATA_SETS",
    "FINE_CELLS",
    "FIRST_TEST_SEED",
    "FieldProcessor",
    "Item",
    "OperatorDataset",
    "Splits",
    "darcy_fields",
    "data_set",
    "keywords",
    "load_splits",
]
