"""The benchmark of the graph layers runs and keeps what it measured before."""

import pytest

from benchmarks import gno, tables
from benchmarks.__main__ import main


def test_quick_run_writes_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gno, "LARGEST_MATRIX_GB", gno.QUICK[0].matrix_gb())
    arguments = ["gno", "--quick", "--rounds", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    rows = tables.read_csv(tmp_path / "gno.csv")
    assert [(row["points"], row["layer"]) for row in rows] == [
        (str(case.points), layer)
        for case in gno.QUICK
        for layer in ("accelerated", "upstream")
    ]
    fast, upstream, _, too_large = rows
    assert fast["neighbours"] == upstream["neighbours"] != "0"
    assert float(fast["times_faster"]) > 0
    assert float(fast["forward_s"]) < float(fast["forward_backward_s"])
    assert float(fast["peak_mb"]) > 50
    assert too_large["note"].startswith("not run: matrix")
    assert too_large["forward_s"] == ""


def test_surface_lies_in_the_unit_cube():
    points = gno.surface(1000)
    assert 0 < points.min() < 0.2
    assert 0.8 < points.max() < 1


@pytest.mark.parametrize(
    ("arguments", "message"), [(["--rounds", "0"], "--rounds"), (["--quick"], "--out")]
)
def test_bad_arguments(arguments, message, capsys):
    assert main(["gno", *arguments]) == 2
    assert message in capsys.readouterr().err
