"""Generate labelled files from templates. The same seed generates the same bytes.

A template names the path of its files and contains blocks:

- `--- +`: values in «…» must be found.
- `--- -`: values in ‹…› must not be found.
- `--- =`: the head of each file.

A third of the blocks is held out: nobody reads them while working on the detector.
"""

import random
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.corpus.values import fill

TEMPLATES = Path(__file__).parent / "templates"
Split = Literal["seen", "held_out"]
_MARKS = re.compile("«([^«»]*)»|‹([^‹›]*)›")
_POSITIVES, _NEGATIVES = 3, 8  # blocks in a file


@dataclass(frozen=True)
class Label:
    """A value at its place; `wanted`: it is a credential."""

    line: int
    value: str
    wanted: bool
    template: str


@dataclass(frozen=True)
class Made:
    kind: str
    path: str
    text: str
    labels: tuple[Label, ...]


@dataclass(frozen=True)
class _Kind:
    name: str
    path: str
    top: str
    wanted: tuple[str, ...]
    unwanted: tuple[str, ...]


def corpus(split: Split, files_per_block: float, seed: int = 1) -> Iterator[Made]:
    """Make the files of every kind: each block comes about so many times."""
    for file in sorted(TEMPLATES.glob("*.txt")):
        kind = _read(file, split)
        rounds = max(len(kind.wanted) / _POSITIVES, len(kind.unwanted) / _NEGATIVES)
        for number in range(round(rounds * files_per_block)):
            yield _file(kind, number, random.Random(f"{seed} {kind.name} {split} {number}"))


def _read(file: Path, split: Split) -> _Kind:
    head, *blocks = re.split(r"^--- ([+=-])\n", file.read_text("utf-8"), flags=re.MULTILINE)
    by_sign: dict[str, list[str]] = {"+": [], "-": [], "=": []}
    for sign, text in zip(blocks[::2], blocks[1::2], strict=True):
        if sign == "=" or _held_out(text) == (split == "held_out"):
            by_sign[sign].append(text)
    return _Kind(
        file.stem,
        head.partition("path: ")[2].strip(),
        "".join(by_sign["="]),
        tuple(by_sign["+"]),
        tuple(by_sign["-"]),
    )


def _held_out(block: str) -> bool:
    return zlib.crc32(block.encode()) % 3 == 0


def _file(kind: _Kind, number: int, chance: random.Random) -> Made:
    """Put some blocks of both kinds into one file, each in its turn, in a random order."""
    blocks = [*_turn(kind.wanted, number, _POSITIVES), *_turn(kind.unwanted, number, _NEGATIVES)]
    chance.shuffle(blocks)
    text, labels = fill(kind.top, chance), []
    for block in blocks:
        marked = fill(block, chance)
        at = 0
        for match in _MARKS.finditer(marked):
            text += marked[at : match.start()]
            value = match[1] or match[2] or ""
            labels.append(Label(text.count("\n") + 1, value, wanted=match[1] is not None, template=block))
            text += value
            at = match.end()
        text += marked[at:]
    return Made(
        kind.name,
        f"{kind.name}/{number}/{fill(kind.path, chance)}",
        text,
        tuple(label for label in labels if label.value),
    )


def _turn(blocks: tuple[str, ...], number: int, count: int) -> list[str]:
    return [blocks[(number * count + at) % len(blocks)] for at in range(min(count, len(blocks)))]
