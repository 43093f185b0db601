"""Tables of README and documentation are those of the committed results."""

import pytest

from benchmarks.__main__ import main
from benchmarks.cost.study import Study
from benchmarks.tables.documentation import (
    documented_tables,
    markers,
    pages,
    update,
)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_pages_show_the_committed_results(page):
    """If not, ``python -m benchmarks table --update-docs`` writes them."""
    known, text = documented_tables(), page.read_text(encoding="utf-8")
    for name in markers(page):
        assert name in known, f"{page.name} asks for an unknown table"
        shown = text.partition(f"<!-- {name}:start -->\n")[2]
        assert shown.partition(f"\n<!-- {name}:end -->")[0] == known[name](), name


def test_all_tables_are_written(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Study, "draw_committed", lambda study: drawn.append(study.file))
    names = list(documented_tables())
    (tmp_path / "docs").mkdir()
    blocks = [f"<!-- {name}:start -->\n<!-- {name}:end -->\n" for name in names]
    page = tmp_path / "docs" / "page.md"
    page.write_text("a\n" + "b\n".join(blocks) + "c `<!-- other:start -->` d\n")
    (tmp_path / "README.md").write_text(
        "<!-- other:start -->\nold\n<!-- other:end -->\n"
    )
    lines = list(update(tmp_path))
    assert lines[0] == "README.md: other (unknown)"
    assert lines[1:] == [f"docs/page.md: {name}" for name in names]
    text = page.read_text(encoding="utf-8")
    for make in documented_tables().values():
        assert make() in text
    assert "old" in (tmp_path / "README.md").read_text()
    assert "cost.csv" in drawn


def test_tables_of_studies_are_shown(capsys):
    assert main(["table", "cost-gno"]) == 0
    assert "accelerated" in capsys.readouterr().out
    assert main(["table"]) == 0
    assert "sweep, authors, authors-short, demo-table" in capsys.readouterr().out
    assert main(["table", "3"]) == 2
    assert "unknown table (=3)" in capsys.readouterr().err
    assert main(["table", "library", "--out", "somewhere"]) == 2
    assert "--out is for tables of runs.csv" in capsys.readouterr().err


def test_documentation_is_of_committed_results(tmp_path, capsys):
    assert main(["table", "--out", str(tmp_path), "--update-docs"]) == 2
    assert "leave out the name and" in capsys.readouterr().err
