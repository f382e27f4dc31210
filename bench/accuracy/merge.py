"""Merge the answers of readers into `labels.jsonl` and `read_files.jsonl`.

python -m bench.accuracy.merge --cards DIR [--answers DIR] reads the cards that `bench.accuracy.cards` wrote
and the files `labels-*.jsonl`. An answer to a card of a second reading gets `by` 2. A later answer replaces
an earlier one. Answers that fit no card, and cards without an answer, are counted and listed.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.accuracy.labels import (
    LABELS,
    READ_FILES,
    VERDICTS,
    Label,
    ReadFile,
    read_files,
    read_labels,
    write_labels,
    write_read_files,
)
from bench.accuracy.repositories import DATA
from bench.accuracy.scans import digest_of

FOUND_BY_READER = "read"  # stored as the rule of a value that a reader found in a file


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cards", type=Path, required=True)
    parser.add_argument("--answers", type=Path, help="where the answers are, unless they are with the cards")
    parser.add_argument("--into", type=Path, default=DATA, help="the folder of both files")
    arguments = parser.parse_args()
    problems = merge(arguments.cards, arguments.answers or arguments.cards, arguments.into)
    print("\n".join(problems), file=sys.stderr)


def merge(cards: Path, answers: Path, into: Path) -> list[str]:
    """Merge the answers into the labels in a folder and return what is wrong with them."""
    given = list(read_answers(answers))
    from_cards, problems = merge_cards(read_cards(cards), given)
    files, from_files, file_problems = merge_files(cards, given)
    labels = {(label.key, label.by): label for label in read_labels(into / LABELS)}
    labels |= {(label.key, label.by): label for label in from_cards}
    for label in from_files:  # a value that has a card keeps the answer to the card
        labels.setdefault((label.key, label.by), label)
    known_files = {(file.repo, file.path): file for file in [*read_files(into / READ_FILES), *files]}
    write_labels(labels.values(), into / LABELS)
    write_read_files(known_files.values(), into / READ_FILES)
    print(f"{len(labels)} labels, {len(known_files)} files read, {len(problems + file_problems)} problems")
    return problems + file_problems


def read_answers(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the answers in all files of a folder."""
    for file in sorted(folder.glob("labels-*.jsonl")):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            try:
                answer = json.loads(line)
            except ValueError:
                print(f"{file.name}:{number}: no JSON", file=sys.stderr)
                continue
            yield answer


def read_cards(folder: Path) -> dict[str, dict[str, Any]]:
    """Return all cards by their ids, with rule and confidence also where readers do not see them."""
    cards: dict[str, dict[str, Any]] = {}
    for index in sorted(folder.glob("*.index")):
        for file in [index, *sorted(folder.glob(f"{index.stem}-[0-9][0-9].jsonl"))]:
            for line in file.read_text("utf-8").splitlines():
                card = json.loads(line)
                cards[card["card"]] = cards.get(card["card"], {}) | card
    return cards


def merge_cards(
    cards: Mapping[str, dict[str, Any]], answers: Iterable[dict[str, Any]]
) -> tuple[list[Label], list[str]]:
    """Return the labels that the answers to cards are, and what is wrong."""
    labels: dict[str, Label] = {}
    problems = []
    for answer in answers:
        if "card" not in answer:
            continue
        card = cards.get(answer["card"])
        if card is None or answer.get("label") not in VERDICTS:
            problems.append(f"no such card or label: {answer['card']} {answer.get('label')}")
        else:
            labels[answer["card"]] = label_of_card(card, answer["label"])
    problems += [f"no answer: {card}" for card in sorted(cards.keys() - labels.keys())]
    return list(labels.values()), problems


def label_of_card(card: dict[str, Any], verdict: str) -> Label:
    """Return the label that an answer to a card is."""
    return Label(
        repo=card["repo"],
        commit=card["commit"],
        path=card["path"],
        line=card["line"],
        digest=card["digest"],
        rule=card["rule"],
        label=verdict,  # type: ignore[arg-type]
        by=2 if card["card"].startswith("s") else 1,
    )


def merge_files(folder: Path, answers: list[dict[str, Any]]) -> tuple[list[ReadFile], list[Label], list[str]]:
    """Return the files that were read in full, the credentials found in them, and what is wrong."""
    files: dict[str, ReadFile] = {}
    labels: list[Label] = []
    problems: list[str] = []
    for answer in answers:
        if "file" not in answer:
            continue
        file = folder / "files" / f"{answer['file']}.txt"
        header, *lines = file.read_text("utf-8").split("\n")
        known = ReadFile(**json.loads(header.removeprefix("# ")))
        if answer.get("read"):
            files[answer["file"]] = known
            continue
        found = _label_of_value(known, lines, answer)
        if isinstance(found, Label):
            labels.append(found)
        else:
            problems.append(found)
    unread = {
        label
        for label in labels
        if (label.repo, label.path) not in {(f.repo, f.path) for f in files.values()}
    }
    problems += [f"a value in a file that nobody read in full: {label.repo} {label.path}" for label in unread]
    return list(files.values()), labels, problems


def _label_of_value(known: ReadFile, lines: list[str], answer: dict[str, Any]) -> Label | str:
    """Return the label of a value in a file, or what is wrong with the answer."""
    place = f"{answer['file']}:{answer.get('line')}"
    if answer.get("label") not in ("leak", "example"):
        return f"{place}: neither leak nor example"
    number, value = answer["line"], answer["value"]
    texts = [re.sub(r"^\d+\t", "", line) for line in lines]
    if not 1 <= number <= len(texts) or value not in texts[number - 1]:
        return f"{place}: the value is not in this line"
    return Label(
        repo=known.repo,
        commit=known.commit,
        path=known.path,
        line=number,
        digest=digest_of(value),
        rule=FOUND_BY_READER,
        label=answer["label"],
        by=1,
    )


if __name__ == "__main__":
    main()
