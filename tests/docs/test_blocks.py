"""The Python in README and docs runs as it is printed."""

import inspect
import math
import re
from pathlib import Path

import pytest

from dinozaur_no import BayesianDiffusionConv, DiffusionSpectralConv

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]
# A block with an ellipsis, alone on its line or in a call, shows a part of a script.
PARTIAL = re.compile(r"^\.\.\.$|\(\.\.\.", re.MULTILINE)
# A block, and what it prints if that is shown right below it.
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run_one_after_the_other(page, capsys):
    namespace = {"__name__": "__main__"}
    for number, (block, output) in enumerate(blocks(page), 1):
        code = compile(block, f"{page.name}, block {number}", "exec")
        if PARTIAL.search(block):
            continue
        exec(code, namespace)
        printed = capsys.readouterr().out
        if output:
            assert printed == output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_parts_exist(page):
    for block, _ in blocks(page):
        for line in re.findall(r"^from dinozaur_no.*import .*$", block, re.M):
            if PARTIAL.search(block):
                exec(line, {})


@pytest.mark.parametrize("conv", [DiffusionSpectralConv, BayesianDiffusionConv])
def test_options_of_the_layers_are_those_of_the_code(conv):
    page = (ROOT / "docs/layer.md").read_text(encoding="utf-8")
    _, mark, rest = page.partition(f"<!-- options of {conv.__name__} -->\n")
    assert mark
    shown = re.findall(r"^\| `(\w+)` \| `(.+?)` \|", rest.partition("\n\n")[0], re.M)
    parameters = inspect.signature(conv).parameters
    for name, default in shown:
        assert eval(default, {"math": math}) == parameters[name].default, name
    if conv is BayesianDiffusionConv:
        options = {p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
        assert {name for name, _ in shown} == options
