"""Golden scripts: text files of commands and the expected answer of each, so that a failure reads
as the diff of a conversation.

A script is a list of blocks with a blank line between them: the command's lines, a line of four
dashes, the expected answer. Lines that begin with `#` before a command belong to the reader.
`make golden-rewrite` writes the answers of today into the scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SEPARATOR = "----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One exchange. `heading` is the comment lines above it."""

    heading: tuple[str, ...]
    command: str
    expected: str


def read_script(path: Path) -> list[Block]:
    """The blocks of a script. ValueError for a command without the separator."""
    blocks = []
    for chunk in path.read_text(encoding="utf-8").split("\n\n"):
        lines = chunk.strip("\n").splitlines()
        if not lines:
            continue
        comments = next((index for index, line in enumerate(lines) if not line.startswith("#")), len(lines))
        heading, body = tuple(lines[:comments]), lines[comments:]
        if not body:
            blocks.append(Block(heading=heading, command="", expected=""))
            continue
        if SEPARATOR not in body:
            raise ValueError(f"{path.name}: no {SEPARATOR} after {body[0]!r}")
        middle = body.index(SEPARATOR)
        blocks.append(Block(heading=heading, command="\n".join(body[:middle]), expected="\n".join(body[middle + 1 :])))
    return blocks


def run_script(path: Path, answer: Callable[[str], str], *, is_rewrite: bool) -> None:
    """Give each command to `answer` in order and compare. An answer may not hold a blank line
    (write `.` there).
    """
    answered = [
        Block(heading=block.heading, command=block.command, expected=answer(block.command).strip("\n"))
        if block.command
        else block
        for block in read_script(path)
    ]
    text = "\n\n".join(_text(block) for block in answered) + "\n"
    if is_rewrite:
        path.write_text(text, encoding="utf-8")
        return
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; if that is wanted: make golden-rewrite"


def _text(block: Block) -> str:
    lines = [*block.heading]
    if block.command:
        lines += [block.command, SEPARATOR]
        lines += [block.expected] if block.expected else []
    return "\n".join(lines)
