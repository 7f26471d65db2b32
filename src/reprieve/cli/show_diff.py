"""Write a diff to a person or a program."""

from __future__ import annotations

from reprieve.app.patch import diff_lines
from reprieve.cli import humane

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from reprieve.app.lines import Lines
    from reprieve.app.patch import Line
    from reprieve.cli.terminal import Terminal
    from reprieve.model.change import Change


def show_diff(out: Terminal, compared: Iterable[tuple[Change, Lines]]) -> None:
    """Every change with its lines, until nobody reads any more."""
    for change, lines in compared:
        for line in diff_lines(change, lines):
            write_line(out, line)
        if out.is_closed:
            break


def write_line(out: Terminal, line: Line) -> None:
    """To a person without anything that harms a terminal; to a file or program as it is."""
    text, style = line
    if out.is_terminal:
        out.line(humane.safe(text.decode("utf-8", "surrogateescape"), keep="\t"), *([style] if style else []))
    elif style and out.has_colour:
        out.raw(out.styled("\0", style).encode().replace(b"\0", text) + b"\n")
    else:
        out.raw(text + b"\n")
