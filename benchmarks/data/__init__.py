"""Data of the benchmarks, made by built-in solvers or read from public files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.data.arguments import keywords as keywords
    from benchmarks.data.datasets import DATA_SETS as DATA_SETS
    from benchmarks.data.datasets import data_set as data_set
    from benchmarks.data.datasets import load_splits as load_splits
    from benchmarks.data.generators.car import CAR as CAR
    from benchmarks.data.generators.darcy import darcy_fields as darcy_fields
    from benchmarks.data.generators.meshes import FINE_CELLS as FINE_CELLS
    from benchmarks.data.items import darcy_item as darcy_item
    from benchmarks.data.splits import FieldProcessor as FieldProcessor
    from benchmarks.data.splits import Item as Item
    from benchmarks.data.splits import OperatorDataset as OperatorDataset
    from benchmarks.data.splits import RawSample as RawSample
    from benchmarks.data.splits import Splits as Splits
    from benchmarks.data.store import CACHE_DIR as CACHE_DIR

_MODULES = {
    "arguments": ("keywords",),
    "datasets": ("DATA_SETS", "data_set", "load_splits"),
    "generators.car": ("CAR",),
    "generators.darcy": ("darcy_fields",),
    "generators.meshes": ("FINE_CELLS",),
    "items": ("darcy_item",),
    "splits": ("FieldProcessor", "Item", "OperatorDataset", "RawSample", "Splits"),
    "store": ("CACHE_DIR",),
}


def __getattr__(name: str) -> Any:
    # On first use, so that processes that generate samples need not load neuraloperator
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
