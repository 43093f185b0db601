"""Neighbours within a radius, in CSR form, without a matrix of all distances."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from neuralop.layers.neighbor_search import NeighborSearch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from .._torch import outside_transforms, without_transforms
from .._validation import positive, positive_int

#: Queries per call of the tree: bounds the memory of its uncompressed result.
_QUERIES_AT_ONCE = 1 << 15
#: Upstream's distance of a point to itself.
_SELF_DISTANCE = 1e-7


class RadiusSearch(NeighborSearch):
    """Find all data points within a radius of each query, with a k-d tree.

    It takes and returns what `neuralop.layers.neighbor_search.NeighborSearch` does, in
    any dimension, and needs memory for the neighbours only. A query without neighbours
    is allowed: its part of the result is empty.

    A distance equal to the radius counts, in the precision of the coordinates. Upstream
    gets the distances of more than 25 points from a matrix product, which in float32
    moves them by up to about 1e-3; here they are exact to rounding.

    Parameters
    ----------
    return_norm : bool, optional
        Whether to return ``weights``, the squared distances that a weighting function
        takes. They can be differentiated with respect to the coordinates. By default
        False.
    capacity : int, optional
        Number of geometries to remember, by default 8. They are recognised by their
        content, so coordinates may be changed in place.
    capacity_bytes : int, optional
        Bytes to remember; the latest geometry is kept in any case. By default 2**29.
    """

    def __init__(
        self,
        return_norm: bool = False,
        capacity: int = 8,
        capacity_bytes: int = 1 << 29,
    ) -> None:
        super().__init__(use_open3d=False, return_norm=return_norm)
        self.cache = NeighborCache(capacity, capacity_bytes)

    def forward(
        self, data: Tensor, queries: Tensor, radius: float
    ) -> dict[str, Tensor]:
        """Find the neighbours in ``data`` of each of the ``queries``.

        Parameters
        ----------
        data : Tensor of shape (n, d)
            Points to find.
        queries : Tensor of shape (m, d)
            Centres of the balls.
        radius : float
            Radius of the balls.

        Returns
        -------
        dict
            ``neighbors_index``: int64, rows of ``data``, ascending for each query;
            ``neighbors_row_splits``: int64 of shape (m + 1,), where each query begins;
            ``weights``: squared distances, if asked for.
        """
        radius = positive("radius", radius)
        _check_points("data", data)
        _check_points("queries", queries)
        if data.shape[1] != queries.shape[1]:
            raise ValueError(
                f"data has {data.shape[1]} coordinates per point and queries "
                f"{queries.shape[1]}; they must lie in the same space"
            )
        points, centres = _as_array("data", data), _as_array("queries", queries)
        dtype = np.promote_types(points.dtype, centres.dtype)
        points, centres = points.astype(dtype), centres.astype(dtype)

        key = (_digest(points), _digest(centres), radius, queries.device)
        found = self.cache.get(key)
        if found is None:
            arrays = _neighbours(points, centres, radius)
            with outside_transforms():
                index, splits = (torch.from_numpy(a).to(queries.device) for a in arrays)
            found = self.cache.put(key, (index, splits))
        index, splits = found
        neighbors = Neighbors(index, splits, len(data))
        if self.return_norm:
            neighbors["weights"] = squared_distances(data, queries, index, splits)
        return neighbors

    def extra_repr(self) -> str:
        """List the options, for ``print``."""
        return f"return_norm={self.return_norm}"


class Neighbors(dict[str, Tensor]):
    """What a search found, which knows its geometry; copies of it are plain dicts.

    Parameters
    ----------
    index, splits : Tensor
        Neighbours and where each query begins.
    n_points : int
        Number of points that were searched.
    """

    def __init__(self, index: Tensor, splits: Tensor, n_points: int) -> None:
        super().__init__(neighbors_index=index, neighbors_row_splits=splits)
        self._found = index, splits, _writes(index, splits)
        self._n_points = n_points

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def fit(self, n_points: int, n_rows: int) -> bool:
        """Return whether these are unchanged and belong to so many points and rows.

        It reads no numbers, for which a processor would wait for its GPU.
        """
        index, splits, writes = self._found
        own = self.get("neighbors_index") is index
        own = own and self.get("neighbors_row_splits") is splits
        unchanged = own and _writes(index, splits) == writes
        return unchanged and (n_points, n_rows + 1) == (self._n_points, len(splits))


class NeighborCache:
    """The most recently used neighbours; copies and pickles of it start empty."""

    def __init__(self, capacity: int, capacity_bytes: int) -> None:
        self.capacity = positive_int("capacity", capacity)
        self.capacity_bytes = positive_int("capacity_bytes", capacity_bytes)
        self._entries: OrderedDict[Any, tuple[Tensor, Tensor, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return NeighborCache, (self.capacity, self.capacity_bytes)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def get(self, key: Any) -> tuple[Tensor, Tensor] | None:
        """Return a stored entry, unless somebody has written into it since."""
        entry = self._entries.pop(key, None)
        if entry is None or _writes(*entry[:2]) != entry[2]:
            return None
        self._entries[key] = entry
        return entry[:2]

    def put(self, key: Any, found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Store an entry, and forget the oldest ones as needed."""
        self._entries[key] = (*found, _writes(*found))
        while len(self._entries) > 1 and (
            len(self._entries) > self.capacity or self._bytes() > self.capacity_bytes
        ):
            self._entries.popitem(last=False)
        return found

    def _bytes(self) -> int:
        return sum(e[0].nbytes + e[1].nbytes for e in self._entries.values())


def _writes(index: Tensor, splits: Tensor) -> int:
    """Return how many times somebody has written into the tensors."""
    return index._version + splits._version


def squared_distances(
    data: Tensor, queries: Tensor, index: Tensor, splits: Tensor
) -> Tensor:
    """Compute the squared distance of each neighbour to its query; 1e-14 means 0."""
    squares = torch.zeros(len(index), dtype=queries.dtype, device=queries.device)
    for x, y in zip(queries.unbind(1), data.unbind(1)):
        centres = x.repeat_interleave(splits.diff(), output_size=len(index))
        squares = squares + (centres - y[index]).square()
    return squares.masked_fill(squares == 0, _SELF_DISTANCE**2)


def _neighbours(
    points: NDArray[Any], centres: NDArray[Any], radius: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find CSR indices and splits by a slightly larger search, then trim them."""
    indices = [np.zeros(0, np.int64)]
    counts = [np.zeros(1, np.int64)]
    slack = (8 + points.shape[1]) * float(np.finfo(points.dtype).eps)
    tree = cKDTree(points) if len(points) else None
    for start in range(0, len(centres), _QUERIES_AT_ONCE):
        block = centres[start : start + _QUERIES_AT_ONCE]
        if tree is None:
            counts.append(np.zeros(len(block), np.int64))
            continue
        reach = radius * (1 + slack)
        found = cKDTree(block).sparse_distance_matrix(
            tree, reach, output_type="ndarray"
        )
        row, column = found["i"], found["j"]
        # Near the boundary the precision of the coordinates decides, as upstream.
        close = np.flatnonzero(found["v"] >= radius * (1 - slack))
        offsets = block[row[close]] - points[column[close]]
        outside = np.sqrt(np.square(offsets).sum(1)) > points.dtype.type(radius)
        keep = np.ones(len(row), bool)
        keep[close[outside]] = False
        row, column = row[keep], column[keep]
        order = np.argsort(row * np.int64(len(points)) + column)
        indices.append(column[order].astype(np.int64))
        counts.append(np.bincount(row, minlength=len(block)))
    return np.concatenate(indices), np.cumsum(np.concatenate(counts), dtype=np.int64)


def _check_points(name: str, points: Tensor) -> None:
    if not isinstance(points, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(points).__name__}")
    if points.ndim != 2:
        raise ValueError(
            f"{name} has shape {tuple(points.shape)}, expected (points, coordinates)"
        )
    if not points.is_floating_point():
        raise TypeError(f"{name} has dtype {points.dtype}; convert it with .float()")


def _check_finite(name: str, points: NDArray[Any]) -> None:
    bad = ~np.isfinite(points).all(1)
    if bad.any():
        raise ValueError(
            f"{name} has {bad.sum()} points with coordinates that are not finite, the "
            f"first in row {bad.argmax()}; remove them"
        )


def _as_array(name: str, points: Tensor) -> NDArray[Any]:
    with outside_transforms():
        points = without_transforms(name, points).cpu()
        if points.dtype not in (torch.float32, torch.float64):
            points = points.float()
        array: NDArray[Any] = np.ascontiguousarray(points.numpy())
    _check_finite(name, array)
    return array


def _digest(points: NDArray[Any]) -> tuple[Any, ...]:
    content = hashlib.blake2b(points.data, digest_size=16).digest()
    return content, points.shape, points.dtype.str
