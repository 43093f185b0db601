"""The Python in README and docs runs as it is printed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)


# A block with an ellipsis on a line of its own, or in a call, shows a part of a script.
WHOLE = [
    pytest.param(block, id=f"{page.name} {number}")
    for page in PAGES
    for number, block in enumerate(blocks(page), 1)
    if not re.search(r"^\.\.\.$|\(\.\.\.", block, re.M)
]
PARTS = [
    pytest.param(block, id=f"{page.name} {number}")
    for page in PAGES
    for number, block in enumerate(blocks(page), 1)
    if re.search(r"^\.\.\.$|\(\.\.\.", block, re.M)
]


@pytest.mark.parametrize("block", WHOLE)
def test_block_runs(block, capsys):
    exec(compile(block, "block", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", PARTS)
def test_names_in_parts_exist(block):
    compile(block, "block", "exec")
    for line in re.findall(r"^from dinozaur_no.*import .*$", block, re.M):
        exec(line, {})
