"""The code of docs/baselines.md runs, block after block."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "baselines.md"


def test_blocks_run(capsys):
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        exec(block, names)
    assert capsys.readouterr().out.count("Predictive(shape=(2, 1, 16, 16)") == 4
