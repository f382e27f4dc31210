"""The labels of readers: `labels.jsonl`, one object a line; `read_files.jsonl`: files read in full."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

Verdict = Literal["leak", "example", "false"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
LABELS = "labels.jsonl"
READ_FILES = "read_files.jsonl"

Key = tuple[str, str, str]  # repository, path and digest of a value


@dataclass(frozen=True, order=True)
class Label:
    """What a reader says of a value in a file."""

    repo: str
    path: str
    line: int
    digest: str  # 20 bits of the SHA-256 of the value, as 5 hex digits
    by: int  # 1 or 2: the first or the second reading
    commit: str
    rule: str  # "read" if a reader found the value; "kingfisher:…", "detect-secrets:…"
    label: Verdict

    @property
    def key(self) -> Key:
        """Return what findings are matched by."""
        return self.repo, self.path, self.digest


@dataclass(frozen=True, order=True)
class ReadFile:
    """A file that was read in full: each of its credentials has a label."""

    repo: str
    path: str
    commit: str


_FIELDS = ("repo", "commit", "path", "line", "digest", "rule", "label", "by")


def parse_label(line: str) -> Label:
    """Return the label of one line; raise ValueError if something is wrong with it."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or set(fields) != set(_FIELDS):
        raise ValueError(f"the fields of a label are {', '.join(_FIELDS)}")
    label = Label(**fields)
    texts = (label.repo, label.path, label.rule, label.commit, label.digest, label.label)
    problems = {
        "texts are strings that are not empty": all(isinstance(text, str) and text for text in texts),
        "label is leak, example or false": label.label in VERDICTS,
        "by is 1 or 2": label.by in (1, 2) and type(label.by) is int,
        "line is 1 or more": type(label.line) is int and label.line >= 1,
        "digest is 5 hex digits": re.fullmatch(r"[0-9a-f]{5}", str(label.digest)),
        "commit is 40 hex digits": re.fullmatch(r"[0-9a-f]{40}", str(label.commit)),
    }
    for rule, followed in problems.items():
        if not followed:
            raise ValueError(rule)
    return label


def read_labels(file: Path) -> list[Label]:
    """Return all labels; exit with the line of the first one that is wrong or there twice."""
    labels: list[Label] = []
    known: set[tuple[Key, int]] = set()
    for number, line in enumerate(_lines(file), 1):
        try:
            label = parse_label(line)
        except ValueError as error:
            raise SystemExit(f"{file}:{number}: {error}") from None
        if (label.key, label.by) in known:
            raise SystemExit(f"{file}:{number}: a second label of reader {label.by} for the same value")
        known.add((label.key, label.by))
        labels.append(label)
    return labels


def write_labels(labels: Iterable[Label], file: Path) -> None:
    """Write labels in a fixed order, so that a change is short to read."""
    rows = ({name: asdict(label)[name] for name in _FIELDS} for label in sorted(labels))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def read_files(file: Path) -> list[ReadFile]:
    """Return the files that were read in full."""
    return [ReadFile(**json.loads(line)) for line in _lines(file)]


def write_read_files(files: Iterable[ReadFile], file: Path) -> None:
    """Write the list of files that were read in full."""
    file.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in sorted(files)), "utf-8")


def by_key(labels: Iterable[Label], reading: int = 1) -> dict[Key, Label]:
    """Return the labels of one reading by what findings are matched by."""
    return {label.key: label for label in labels if label.by == reading}


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []
