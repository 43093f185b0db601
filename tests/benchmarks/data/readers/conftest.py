"""Cheap distances for the readers of meshes."""

import pytest
from support import public_files


@pytest.fixture
def mesh_options(tmp_path, monkeypatch):
    """Small grids, whose distances are replaced by coordinates."""
    monkeypatch.setattr(
        "benchmarks.data.readers.meshes.signed_distance", public_files.coordinate
    )
    return {"grid": 3, "cache_dir": tmp_path / "cache"}
