"""Benchmark of the metrics: a quick run, its table in the docs, their code."""

import re
import sys

from benchmarks import metrics, tables
from benchmarks.__main__ import main
from dinozaur_no import metrics as own


def test_quick_run(tmp_path, capsys):
    assert main(["metrics", "--quick", "--rounds", "2", "--out", str(tmp_path)]) == 0
    rows = tables.read_csv(tmp_path / "metrics.csv")
    assert [row["metric"] for row in rows] == ["MA", "IS", "NLL", "CRPS"]
    for row in rows:
        assert row.keys() >= metrics.COLUMNS.keys()
        assert float(row["difference"]) < 1e-6
        assert float(row["own_ms"]) > 0
        assert float(row["ratio"]) > 0
    assert metrics.show(rows) in capsys.readouterr().out


def test_without_the_other_package(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uncertainty_toolbox", None)
    assert main(["metrics", "--quick", "--out", str(tmp_path)]) == 2
    assert "pip install dinozaur-no[test]" in capsys.readouterr().err


def test_docs_show_the_committed_results():
    rows = tables.read_csv(metrics.RESULTS / "metrics.csv")
    page = metrics.PAGE.read_text(encoding="utf-8")
    shown = page.partition("<!-- metrics:start -->\n")[2]
    assert shown.partition("\n<!-- metrics:end -->")[0] == metrics.show(rows)


def test_code_of_the_docs_runs(capsys):
    page = metrics.PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(code, str(metrics.PAGE), "exec"), {})
    printed = capsys.readouterr().out
    coverage = re.search(r"coverage_90 +(\S+)", printed)
    assert 0.8 < float(coverage[1]) < 0.99


def test_docs_name_all_functions():
    page = metrics.PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)", page))
    assert set(own.__all__) - {"observed_coverage"} <= named
