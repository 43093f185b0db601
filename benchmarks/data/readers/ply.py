"""Triangle meshes in PLY files: text, and binary of either byte order."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.readers.base import existing

TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4"},
    **{"uint": "u4", "float": "f4", "double": "f8"},
    **{"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4"},
    **{"uint32": "u4", "float32": "f4", "float64": "f8"},
}
ORDERS: dict[str, Literal["=", "<", ">"]] = {
    "ascii": "=",
    "binary_little_endian": "<",
    "binary_big_endian": ">",
}
CORNERS = ("vertex_indices", "vertex_index")  # both names are in use
COUNT = "number of corners"


@dataclass
class _Element:
    """A block of the file: rows of the same properties."""

    name: str
    rows: int
    fields: list[tuple[Any, ...]] = field(default_factory=list)  # as of a numpy dtype
    other_list: str = ""  # a list that is not the corners of the faces


def read_ply(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read vertices (n, 3) and triangles (m, 3) of a mesh.

    Other properties of vertices and faces, and other elements, are skipped. All faces
    must be triangles.
    """
    try:
        tables = _read_elements(existing(path).read_bytes())
        vertices = np.stack([tables["vertex"][axis] for axis in "xyz"], axis=1)
        triangles = tables["face"]["corners"].astype(np.int64)
    except (KeyError, ValueError, IndexError) as error:
        raise ValueError(
            f"{path} is not a PLY file with vertices x, y, z and triangles, or is "
            f"truncated: {error}"
        ) from error
    if triangles.size and not 0 <= triangles.min() <= triangles.max() < len(vertices):
        raise ValueError(
            f"{path}: corners of triangles go from {triangles.min()} to "
            f"{triangles.max()}, but there are {len(vertices)} vertices"
        )
    if not np.isfinite(vertices).all():
        raise ValueError(f"{path}: 'x', 'y' or 'z' of a vertex is not finite")
    return vertices.astype(np.float64), triangles


def _read_elements(content: bytes) -> dict[str, NDArray[Any]]:
    """Read the elements of the file up to vertices and faces."""
    if not content.startswith(b"ply"):
        raise ValueError("it does not begin with 'ply'")
    end = content.index(b"end_header")
    start = content.index(b"\n", end) + 1
    order, elements = _read_header(content[:end].decode("ascii", "replace"))
    lines = content[start:].splitlines() if order == "=" else []
    tables: dict[str, NDArray[Any]] = {}
    for element in elements:
        if {"vertex", "face"} <= tables.keys():
            break
        if element.other_list:
            raise ValueError(
                f"the list {element.other_list!r} of the element {element.name!r} is "
                "not supported"
            )
        dtype = np.dtype(element.fields).newbyteorder(order)
        if order == "=":
            table = _parse(lines[: element.rows], element, dtype)
            lines = lines[element.rows :]
        else:
            held = min(element.rows, (len(content) - start) // dtype.itemsize)
            table = np.frombuffer(content, dtype, held, start)
            start += held * dtype.itemsize
        if element.name == "face":
            # In a binary file a face with more corners shifts all rows behind it; its
            # own number of corners is still read correctly.
            _check_corners(table[COUNT])
        if len(table) < element.rows:
            raise ValueError(
                f"{len(table)} rows of {element.rows} of the element {element.name!r}"
            )
        tables[element.name] = table
    return tables


def _read_header(text: str) -> tuple[Literal["=", "<", ">"], list[_Element]]:
    order, elements = None, list[_Element]()
    for line in text.splitlines():
        match line.split():
            case ["format", name, "1.0"]:
                order = ORDERS[name]
            case ["element", name, rows]:
                elements.append(_Element(name, int(rows)))
            case ["property", "list", count, kind, name]:
                if elements[-1].name == "face" and name in CORNERS:
                    corners = ("corners", TYPES[kind], 3)
                    elements[-1].fields += [(COUNT, TYPES[count]), corners]
                else:
                    elements[-1].other_list = name
            case ["property", kind, name]:
                elements[-1].fields.append((name, TYPES[kind]))
    if order is None:
        raise ValueError("its header has no format")
    return order, elements


def _parse(lines: list[bytes], element: _Element, dtype: Any) -> NDArray[Any]:
    """Parse rows of text into a structured array."""
    table = np.zeros(len(lines), dtype)
    words = [line.split() for line in lines]
    place = 0
    for name, _, *size in element.fields:
        width = size[0] if size else 1
        if name == "corners":
            _check_corners(table[COUNT])
        values = [row[place : place + width] for row in words]
        table[name] = np.array(values, dtype=float).reshape(len(lines), *size)
        place += width
    return table


def _check_corners(counts: NDArray[Any]) -> None:
    if (counts != 3).any():
        at = int(np.argmax(counts != 3))
        raise ValueError(
            f"face {at} has {counts[at]} corners; only triangles are supported"
        )
