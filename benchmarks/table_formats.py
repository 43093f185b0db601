"""Tables with marked cells, as text, Markdown or LaTeX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

FORMATS = ("text", "markdown", "latex")


@dataclass(frozen=True)
class Cell:
    """What stands in a cell; bold marks the best of a column."""

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
    """All blocks in one of the formats."""
    if style not in FORMATS:
        raise ValueError(f"style (={style}) must be one of {', '.join(FORMATS)}")
    one: dict[str, Callable[[Block], str]] = {
        "text": _text,
        "markdown": _markdown,
        "latex": _latex,
    }
    return "\n\n".join(one[style](block) for block in blocks)


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


def _latex(block: Block) -> str:
    def cell(found: Cell) -> str:
        text = _for_latex(found.text)
        return rf"\textbf{{{text}}}" if found.bold else text

    rows = [[_for_latex(name) for name in block.columns]]
    rows += [[cell(found) for found in line] for line in block.lines]
    lines = [" & ".join(row) + r" \\" for row in rows]
    alignment = "l" + "r" * (len(block.columns) - 1)
    title = rf"{{{len(block.columns)}}}{{c}}{{{_for_latex(block.title)}}}"
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            rf"\multicolumn{title} \\",
            r"\midrule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            f"% {block.note}",
        ]
    )


def _for_latex(text: str) -> str:
    for plain, command in (
        *(("_", r"\_"), ("%", r"\%"), ("±", r"$\pm$")),
        *(("10⁻²", "$10^{-2}$"), ("10³", "$10^3$"), ("e⁻⁴", "$e^{-4}$")),
    ):
        text = text.replace(plain, command)
    return text


def _filled(
    block: Block, mark: Callable[[Cell], str], between: str = "  "
) -> list[str]:
    """Lines of equal length, the first column to the left, the others to the right."""
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
