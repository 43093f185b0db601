"""Fixture of all tests of figures."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _close_figures():
    """Pyplot, once imported, keeps every figure."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
