"""Tables with marked cells, as text or Markdown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FORMATS = ("text", "markdown")


@dataclass(frozen=True)
class Cell:
    """The text of a cell; bold marks the best of a column."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Block:
    """A part of a table: its title, the names of its columns, its lines, a note."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    note: str


def show(blocks: Sequence[Block], style: str) -> str:
    """Render all blocks in one of the formats."""
    if style not in FORMATS:
        raise ValueError(f"style (={style}) must be one of {', '.join(FORMATS)}")
    one = _text if style == "text" else _markdown
    return "\n\n".join(one(block) for block in blocks)


def _text(block: Block) -> str:
    lines = _filled(block, lambda cell: f"*{cell.text}*" if cell.bold else cell.text)
    rule = "-" * max(len(line) for line in lines)
    body = [lines[0], rule, *lines[1:], rule, f"{block.note} Best marked by *."]
    return "\n".join([block.title, *body])


def _markdown(block: Block) -> str:
    mark = _filled(
        block, lambda cell: f"**{cell.text}**" if cell.bold else cell.text, " | "
    )
    rule = " | ".join(["---", *["---:"] * (len(block.columns) - 1)])
    lines = [f"| {line} |" for line in (mark[0], rule, *mark[1:])]
    return "\n".join([f"**{block.title}**", "", *lines, "", block.note])


def _filled(
    block: Block, mark: Callable[[Cell], str], between: str = "  "
) -> list[str]:
    """Align the first column to the left and the others to the right."""
    rows = [
        list(block.columns),
        *([mark(cell) for cell in line] for line in block.lines),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        between.join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
