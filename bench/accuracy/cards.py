"""Prepare what readers label: cards with a value and its context, outside the tree.

python -m bench.accuracy.cards --repos DIR --cards DIR [--work DIR] [--only findings|files|others] writes
- tune-NN.jsonl, aside-NN.jsonl: the drawn findings of each half; a finding that has a label gets no card
- second-tune-NN.jsonl, second-aside-NN.jsonl: those read a second time, without rule and confidence
- others-tune-NN.jsonl, others-aside-NN.jsonl: what only other scanners report, likewise
- NAME.index: card, rule and confidence, for merging; not for readers
- files/NNN.txt and files-batches.txt: configuration files to read in full
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.accuracy.agreement import (
    ONLY_OTHERS,
    draw_only_others,
    group_places,
    is_reported,
    read_other_report,
)
from bench.accuracy.files import ChosenFile, choose_files
from bench.accuracy.labels import LABELS, Key, Label, by_key, read_labels
from bench.accuracy.others import other_scanners
from bench.accuracy.repositories import DATA, ListedRepository, locate_repositories, read_list
from bench.accuracy.sample import draw, draw_second, order_of
from bench.accuracy.scans import Reported, outcrop_scanner, read_report, scan_repositories
from bench.accuracy.tree import list_files, read_blobs

Present = Sequence[tuple[ListedRepository, Path]]

PER_FILE = 110  # cards
BEFORE, AFTER = 6, 4  # lines of context
AROUND = 200  # characters on each side of a value
BATCH_SIZE = 110_000  # characters of the files that one reader gets together


def card_of(found: Reported, repository: ListedRepository, text: str, prefix: str = "") -> dict[str, Any]:
    """Return a card: the finding with the lines around it, long lines cut around the value."""
    lines = text.split("\n")
    index = min(found.line, len(lines)) - 1
    first = found.value.split("\n")[0]
    return {
        "card": prefix + card_id(found),
        "repo": found.repo,
        "kind": repository.kind,
        "commit": repository.commit,
        "path": found.path,
        "line": found.line,
        "rule": found.rule,
        "confidence": found.confidence,
        "digest": found.digest,
        "value": cut(found.value, 0, 3 * AROUND),
        "before": [cut(line, 0) for line in lines[max(index - BEFORE, 0) : index]],
        "text": cut(lines[index], lines[index].find(first), AROUND + len(first)),
        "after": [cut(line, 0) for line in lines[index + 1 : index + 1 + AFTER]],
    }


def card_id(found: Reported) -> str:
    """Return the id of a finding's card."""
    return order_of("card", *found.key)[:10]


def cut(line: str, position: int, after: int = AROUND) -> str:
    """Return the part of a line around a position, with "…" where something is left out."""
    start, end = max(position - AROUND, 0), max(position, 0) + after
    return ("…" if start else "") + line[start:end].rstrip("\r") + ("…" if end < len(line) else "")


def make_cards(drawn: Iterable[Reported], present: Present, prefix: str = "") -> Iterator[dict[str, Any]]:
    """Yield the card of each finding, repository by repository."""
    by_repository: dict[str, list[Reported]] = {}
    for found in drawn:
        by_repository.setdefault(found.repo, []).append(found)
    for repository, git_dir in present:
        findings = by_repository.get(repository.repo, [])
        paths = {found.path for found in findings}
        files = [file for file in list_files(git_dir, repository.commit) if file.path in paths]
        texts = {file.path: decode(content) for file, content in read_blobs(git_dir, files)}
        # A file in an archive or a page has a path of its own: its card has only the value.
        yield from (card_of(found, repository, texts.get(found.path, ""), prefix) for found in findings)


def decode(content: bytes) -> str:
    """Return the text of a file."""
    utf_16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    return content.decode("utf-16" if utf_16 else "utf-8", "replace")


def write_cards(
    folder: Path, name: str, cards: Sequence[dict[str, Any]], *, blind: bool = False, per_file: int = PER_FILE
) -> None:
    """Write cards to files of about the same size, and rules and confidences to `NAME.index`.

    The cards of a blind reading are without rule and confidence.
    """
    count = max(-(-len(cards) // per_file), 1)
    hidden = ("rule", "confidence") if blind else ()
    for number in range(count):
        part = cards[number * len(cards) // count : (number + 1) * len(cards) // count]
        shown = ({key: value for key, value in card.items() if key not in hidden} for card in part)
        write_jsonl(folder / f"{name}-{number + 1:02}.jsonl", shown)
    index = ({key: card[key] for key in ("card", "rule", "confidence")} for card in cards)
    write_jsonl(folder / f"{name}.index", index)


def write_jsonl(file: Path, objects: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object a line."""
    file.write_text("".join(json.dumps(entry) + "\n" for entry in objects), "utf-8")


def write_files(folder: Path, chosen: Sequence[tuple[ChosenFile, str]]) -> None:
    """Write the configuration files with numbered lines, and the list of batches."""
    (folder / "files").mkdir(exist_ok=True)
    batches: list[tuple[str, list[str]]] = []
    size = 0
    for number, (file, text) in enumerate(chosen, 1):
        name = f"files/{number:03}.txt"
        lines = [f"{count}\t{line}" for count, line in enumerate(text.split("\n"), 1)]
        (folder / name).write_text("\n".join([f"# {json.dumps(file.header())}", *lines]) + "\n", "utf-8")
        size += len(text)
        if not batches or batches[-1][0] != file.half or size > BATCH_SIZE:
            batches.append((file.half, []))
            size = len(text)
        batches[-1][1].append(name)
    listing = [
        f"files-{number:02} ({half}): {' '.join(names)}" for number, (half, names) in enumerate(batches, 1)
    ]
    (folder / "files-batches.txt").write_text("\n".join(listing) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repos", type=Path, required=True)
    parser.add_argument("--cards", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    parser.add_argument("--only", choices=["findings", "files", "others"])
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    (work / "accuracy").mkdir(parents=True, exist_ok=True)
    arguments.cards.mkdir(parents=True, exist_ok=True)
    present = [
        (repository, git_dir)
        for repository, git_dir in locate_repositories(read_list(), arguments.repos)
        if git_dir
    ]
    labels = read_labels(DATA / LABELS)
    if arguments.only in (None, "findings"):
        write_findings(arguments.cards, present, work, labels)
    if arguments.only in (None, "files"):
        write_files(arguments.cards, choose_files(present))
    if arguments.only in (None, "others"):
        write_others(arguments.cards, present, work, labels)


def write_findings(folder: Path, present: Present, work: Path, labels: Sequence[Label]) -> None:
    """Write the cards of the drawn findings, each half to its own files."""
    first, second = by_key(labels), by_key(labels, 2)
    for name, part in _halves(present):
        drawn = draw(_scan(part, work))
        reread = draw_second(drawn)
        write_cards(folder, name, list(make_cards(_without(drawn, first), part)))
        write_cards(
            folder, f"second-{name}", list(make_cards(_without(reread, second), part, "s")), blind=True
        )


def write_others(folder: Path, present: Present, work: Path, labels: Sequence[Label]) -> None:
    """Write the cards of what only other scanners report, half of them from each half."""
    tools = other_scanners(work)
    scan_repositories(present, work / "accuracy", tools)
    for name, part in _halves(present):
        ours = group_places(_scan(part, work))
        only = [
            found
            for repository, _ in part
            for tool in tools
            for found in read_other_report(
                repository.repo, tool.name, tool.report(work / "accuracy", repository)
            ).reported
            if not is_reported(found, ours)
        ]
        drawn = _without(draw_only_others(only, ONLY_OTHERS // 2), by_key(labels))
        write_cards(folder, f"others-{name}", list(make_cards(drawn, part)), blind=True)


def _halves(present: Present) -> Iterator[tuple[str, Present]]:
    """Yield the name that files of cards have, and the repositories, of each half."""
    for half, name in (("tuning", "tune"), ("set aside", "aside")):
        yield name, [entry for entry in present if entry[0].half == half]


def _without(findings: Iterable[Reported], labels: Mapping[Key, Label]) -> list[Reported]:
    """Return the findings that have no label yet."""
    return [found for found in findings if found.key not in labels]


def _scan(part: Present, work: Path) -> list[Reported]:
    """Return what Outcrop reports in some repositories at the lowest confidence."""
    scanner = outcrop_scanner()
    scan_repositories(part, work / "accuracy", [scanner])
    return [
        found
        for repository, _ in part
        for found in read_report(repository.repo, scanner.report(work / "accuracy", repository))
    ]


if __name__ == "__main__":
    main()
