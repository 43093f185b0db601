"""Links, tables of contents and reference of the site; ``make docs`` builds it."""

import importlib
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MARKDOWN = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
MADE_BY_SPHINX = {"auto_examples/index"}
GALLERY = {f"auto_examples/{p.stem}" for p in (ROOT / "examples").glob("plot_*.py")}


def text_of(page):
    """Return the text of a page without code and formulas."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|\$\$.*?\$\$|\$[^$\n]+\$", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "code", text)


def links(page):
    return re.findall(r"\]\(([^)\s]+)\)", text_of(page))


def anchors(page):
    """Return the anchors of headings, named as repository hosts and MyST do."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_toctrees_name_every_page_once():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(.*?)```", index, re.S)
    lines = [line for tree in trees for line in tree.split("\n")]
    named = [line for line in lines if line and not line.startswith(":")]
    pages = {page.stem for page in DOCS.iterdir() if page.suffix in (".md", ".rst")}
    assert sorted(named) == sorted(pages - {"index"} | MADE_BY_SPHINX)


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in links(page):
        url = urlsplit(link)
        if url.scheme:
            assert url.scheme == "https", link
            assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", url.netloc), link
            continue
        target = page.parent / url.path if url.path else page
        generated = url.path.removesuffix(".rst") in MADE_BY_SPHINX | GALLERY
        assert generated or target.exists(), link
        if url.fragment:
            assert url.fragment in anchors(target), link


@pytest.mark.parametrize(
    "module",
    [
        "dinozaur_no",
        "dinozaur_no.metrics",
        "dinozaur_no.plots",
        "dinozaur_no.gno",
    ],
)
def test_reference_names_everything_public(module):
    reference = (DOCS / "api.rst").read_text(encoding="utf-8")
    entries = re.findall(r"^   ~?([\w.]+)$", reference, re.M)
    named = {entry.rsplit(".", 1)[-1] for entry in entries}
    assert set(importlib.import_module(module).__all__) <= named


def test_every_picture_is_shown():
    sources = [*MARKDOWN, DOCS / "conf.py"]
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    pictures = sorted(path.name for path in (DOCS / "_static").glob("*.png"))
    assert pictures
    assert [name for name in pictures if f"_static/{name}" not in text] == []
