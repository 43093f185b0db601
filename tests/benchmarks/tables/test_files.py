"""Rows in CSV files and tables between markers."""

import pytest

from benchmarks import tables


def test_markers_are_required_and_the_rest_is_kept(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- t:start -->\nold\n<!-- t:end -->\nb\n")
    tables.replace_between_markers(page, "t", "new")
    assert page.read_text() == "a\n<!-- t:start -->\nnew\n<!-- t:end -->\nb\n"
    with pytest.raises(ValueError, match="other:start"):
        tables.replace_between_markers(page, "other", "new")
