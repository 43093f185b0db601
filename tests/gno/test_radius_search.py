"""The radius search against upstream's: sets, distances, cache, errors."""

import copy
import itertools
import pickle

import pytest
import torch
from neuralop.layers.neighbor_search import native_neighbor_search
from support.graphs import RADIUS, TOLERANCE, points

from dinozaur_no.gno import RadiusSearch


def neighbours_as_sets(neighbors):
    index = neighbors["neighbors_index"].tolist()
    splits = neighbors["neighbors_row_splits"].tolist()
    return [set(index[a:b]) for a, b in itertools.pairwise(splits)]


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_search_finds_upstreams_sets(dimension, dtype):
    data, queries = points(90, dimension), points(70, dimension)
    data, queries = data.to(dtype), queries.to(dtype)
    theirs = native_neighbor_search(data, queries, RADIUS, return_norm=True)
    mine = RadiusSearch(return_norm=True)(data, queries, RADIUS)
    assert neighbours_as_sets(mine) == neighbours_as_sets(theirs)
    assert mine["neighbors_index"].dtype == torch.int64
    assert mine["neighbors_row_splits"].dtype == torch.int64
    for a, b in itertools.pairwise(mine["neighbors_row_splits"]):
        assert (mine["neighbors_index"][a:b].diff() > 0).all()
    torch.testing.assert_close(mine["weights"], theirs["weights"], **TOLERANCE)
    assert "weights" not in RadiusSearch()(data, queries, RADIUS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("radius", [0.1, 0.2, 0.3, 0.7])
def test_search_on_the_boundary_and_at_distance_zero(radius, dtype):
    # Up to 25 points upstream computes distances without a matrix product.
    data = torch.arange(20, dtype=dtype)[:, None] / 10
    queries = torch.cat([data[:5], torch.full((1, 1), 9.0, dtype=dtype)])
    theirs = native_neighbor_search(data, queries, radius, return_norm=True)
    mine = RadiusSearch(return_norm=True)(data, queries, radius)
    assert neighbours_as_sets(mine) == neighbours_as_sets(theirs)
    assert len(neighbours_as_sets(mine)[-1]) == 0
    torch.testing.assert_close(mine["weights"], theirs["weights"], atol=0, rtol=1e-5)
    assert mine["weights"].min() == torch.tensor(1e-7, dtype=dtype) ** 2


@pytest.mark.parametrize(("n", "m"), [(0, 4), (5, 0), (0, 0)])
def test_search_without_points(n, m):
    found = RadiusSearch(return_norm=True)(points(n), points(m), 0.5)
    assert found["neighbors_index"].shape == found["weights"].shape == (0,)
    assert found["neighbors_row_splits"].tolist() == [0] * (m + 1)


def test_many_queries_are_searched_in_blocks(monkeypatch):
    data, queries = points(50), points(64)
    whole = RadiusSearch()(data, queries, RADIUS)
    monkeypatch.setattr("dinozaur_no.gno.radius_search._QUERIES_AT_ONCE", 10)
    parts = RadiusSearch()(data, queries, RADIUS)
    assert all(torch.equal(parts[key], whole[key]) for key in whole)


def test_cache_knows_geometries_by_content():
    search = RadiusSearch()
    data, queries = points(50), points(40)
    first = search(data, queries, RADIUS)
    again = search(data.clone(), queries.clone(), RADIUS)
    assert again["neighbors_index"] is first["neighbors_index"]
    assert again is not first
    assert len(search.cache) == 1
    assert search(data, queries, 0.5)["neighbors_index"].numel() > (
        first["neighbors_index"].numel()
    )
    data += 0.2
    moved = search(data, queries, RADIUS)
    assert neighbours_as_sets(moved) == neighbours_as_sets(
        RadiusSearch()(data, queries, RADIUS)
    )
    assert neighbours_as_sets(moved) != neighbours_as_sets(first)
    assert len(search.cache) == 3


def test_cache_notices_that_its_result_was_changed():
    search, data, queries = RadiusSearch(), points(50), points(40)
    before = search(data, queries, RADIUS)["neighbors_index"].clone()
    search(data, queries, RADIUS)["neighbors_index"].zero_()
    assert torch.equal(search(data, queries, RADIUS)["neighbors_index"], before)


def test_cache_is_bounded_and_does_not_travel():
    search = RadiusSearch(capacity=2)
    geometries = [(points(20), points(10)) for _ in range(3)]
    for data, queries in geometries:
        search(data, queries, RADIUS)
    assert len(search.cache) == 2
    small = RadiusSearch(capacity_bytes=1)
    for data, queries in geometries:
        small(data, queries, RADIUS)
    assert len(small.cache) == 1
    for other in (copy.deepcopy(search), pickle.loads(pickle.dumps(search))):
        assert len(other.cache) == 0
        assert other.cache.capacity == 2


@pytest.mark.parametrize(
    ("data", "queries", "radius", "error", "message"),
    [
        (points(4), points(3), 0.0, ValueError, r"radius \(=0.0\)"),
        (points(4), points(3), -1, ValueError, r"radius \(=-1\)"),
        (points(4), points(3, 2), 0.1, ValueError, "3 coordinates.*queries 2"),
        (points(4) / 0, points(3), 0.1, ValueError, "data has 4 points.*finite"),
        (points(4), points(3) * torch.nan, 0.1, ValueError, "queries has 3 points"),
        (points(4)[None], points(3), 0.1, ValueError, r"data has shape \(1, 4, 3\)"),
        (points(4), points(3).long(), 0.1, TypeError, "queries has dtype"),
        (points(4).numpy(), points(3), 0.1, TypeError, "data must be a torch.Tensor"),
    ],
)
def test_errors_of_the_search(data, queries, radius, error, message):
    with pytest.raises(error, match=message):
        RadiusSearch()(data, queries, radius)
