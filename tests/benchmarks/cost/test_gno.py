"""The benchmark of the graph layers runs and keeps what it measured before."""

import pytest

from benchmarks import gno, gno_reduction, tables
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


def test_quick_reductions_write_rows(tmp_path, capsys):
    arguments = ["gno", "--what", "reduction", "--quick", "--rounds", "1"]
    assert main([*arguments, "--threads", "1", "--out", str(tmp_path)]) == 0
    rows = tables.read_csv(tmp_path / "gno_reduction.csv")
    splits = gno_reduction.random_splits(gno_reduction.QUICK[0])
    methods = gno_reduction.reductions(splits, gno_reduction.QUICK[0].edges)
    assert [row["method"] for row in rows] == list(methods)
    assert rows[0]["ratio_forward_backward"] == "1.00"
    assert all(row["cpu"] and row["date"] and row["threads"] == "1" for row in rows)
    assert not (tmp_path / "gno.csv").exists()


def test_rows_to_reduce_are_not_empty():
    size = gno_reduction.Size(1000, 1, 10)
    counts = gno_reduction.random_splits(size).diff()
    assert len(counts) == 100
    assert counts.min() > 0
    assert counts.sum() == 1000


def shown(page, part):
    start, end = f"<!-- gno-{part}:start -->", f"<!-- gno-{part}:end -->"
    assert start in page
    assert end in page
    return page.partition(start)[2].partition(end)[0].strip()


def test_documentation_shows_the_committed_results():
    page = gno.PAGE.read_text(encoding="utf-8")
    found = gno.documented_tables()
    for part in gno.PARTS:
        assert shown(page, part) == found.get(part, "Not measured yet."), part


def test_update_docs_writes_the_tables(tmp_path, monkeypatch, capsys):
    results, page = tmp_path / "results", tmp_path / "graph.md"
    arguments = ["gno", "--quick", "--rounds", "1", "--out", str(results)]
    assert main([*arguments, "--what", *gno.PARTS]) == 0
    page.write_text(gno.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(gno, "RESULTS", results)
    gno.update_docs(page)
    text = page.read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    assert "accelerated" in shown(text, "decode")
    assert gno_reduction.REFERENCE in shown(text, "reduction")


def test_surface_lies_in_the_unit_cube():
    points = gno.surface(1000)
    assert 0 < points.min() < 0.2
    assert 0.8 < points.max() < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "--rounds"),
        (["--threads", "-1"], "--threads"),
        (["--quick"], "--out"),
        (["--update-docs", "--out", "x"], "--update-docs"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    assert main(["gno", *arguments]) == 2
    assert message in capsys.readouterr().err
