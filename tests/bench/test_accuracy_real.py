"""Part 2 of `make bench-accuracy` from end to end, on a made-up repository with a known answer."""

import json
import random
import string
import subprocess

import pytest

from bench.accuracy.cards import write_files, write_findings
from bench.accuracy.files import ChosenFile, choose_files
from bench.accuracy.labels import read_labels
from bench.accuracy.merge import merge
from bench.accuracy.real import run_real
from bench.accuracy.repositories import ListedRepository, locate_repositories
from bench.accuracy.tree import list_files, read_blobs
from tests.support.rulesets import cached_in

LETTERS = random.Random(39)


def made_up():
    """Return a value that the generic rule reports."""
    return "".join(LETTERS.choices(string.ascii_letters + string.digits, k=18))


LEAK, EXAMPLE, FALSE, MISSED = made_up(), made_up(), made_up(), "sesame"
FILES = {
    "app/settings.py": f'db_password = "{LEAK}"\n',
    "tests/test_sign_in.py": f'password = "{EXAMPLE}"\n',
    "app/tokens.py": f'token_secret = "{FALSE}"\n',
    "deploy/config.yml": f"# no\ndb_password: {LEAK}\nopens: {MISSED}\n",
    "copied/config.yml": f"# no\ndb_password: {LEAK}\nopens: {MISSED}\n",
    "lang/de.json": '{"password": "Passwort"}\n',
    "logo.png": "not text \0",
}


def git(folder, *arguments):
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    tree = tmp_path / "tree"
    for path, text in FILES.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    (tree / ".gitattributes").write_text("tests export-ignore\n")
    (tree / "link").symlink_to("/etc/passwd")
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "All")
    git(tmp_path, "clone", "--quiet", "--bare", "tree", "repos/made+up/any")
    return ListedRepository("made/up", git(tree, "rev-parse", "HEAD"), "web")


def write_answers(cards, verdicts):
    """Answer every card by its value."""
    for file in cards.glob("*-01.jsonl"):
        given = [json.loads(line) for line in file.read_text().splitlines()]
        answers = [{"card": card["card"], "label": verdicts[card["value"]]} for card in given]
        (cards / f"labels-{file.name}").write_text("".join(json.dumps(answer) + "\n" for answer in answers))


def test_cards_answers_and_figures_of_a_made_up_repository(tmp_path, repository, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cached_in(tmp_path / "cache")))
    data, cards, work = tmp_path / "data", tmp_path / "cards", tmp_path / "work"
    for folder in (data, cards, work / "accuracy"):
        folder.mkdir(parents=True)
    absent = ListedRepository("not/here", "0" * 40, "web")
    (data / "repositories.jsonl").write_text(
        "".join(json.dumps(vars(listed)) + "\n" for listed in (repository, absent))
    )
    present = [
        (listed, path) for listed, path in locate_repositories([repository], tmp_path / "repos") if path
    ]
    name = {"tuning": "tune", "set aside": "aside"}[repository.half]

    write_findings(cards, present, work, labels=[])
    given = [json.loads(line) for line in (cards / f"{name}-01.jsonl").read_text().splitlines()]
    assert {(card["path"], card["value"]) for card in given} == {
        ("app/settings.py", LEAK),
        ("app/tokens.py", FALSE),
        ("copied/config.yml", LEAK),
        ("deploy/config.yml", LEAK),
        ("tests/test_sign_in.py", EXAMPLE),
    }
    assert all(card["value"] in card["text"] for card in given)
    write_files(cards, choose_files(present, 6))
    assert (cards / "files" / "001.txt").read_text().split("\n", 1)[1].startswith("1\t# no\n2\tdb_password")
    assert len(list((cards / "files").iterdir())) == 1  # one of two files with the same content

    write_answers(cards, {LEAK: "leak", EXAMPLE: "example", FALSE: "false"})
    found = [
        {"file": "001", "line": 2, "value": LEAK, "label": "leak"},
        {"file": "001", "line": 3, "value": MISSED, "label": "example"},
        {"file": "001", "read": True},
    ]
    (cards / "labels-files-01.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in found))
    assert merge(cards, cards, data) == []
    assert len(read_labels(data / "labels.jsonl")) >= 6

    figures, rest = tmp_path / "figures.json", tmp_path / "unlabelled.jsonl"
    run_real(tmp_path / "repos", work, data=data, json_file=figures, unlabelled=rest)
    half = json.loads(figures.read_text())["halves"][repository.half]
    everything = half["precision"][0]
    assert (everything["group"], everything["findings"], everything["read"]) == ("all", 5, 5)
    assert everything["not_false"]["estimate"] == pytest.approx(4 / 5)
    assert everything["leak"]["estimate"] == pytest.approx(3 / 5)
    assert [(row["credentials"], row["found"]["estimate"]) for row in half["recall"]][1:] == [(2, 0.5)] * 2
    assert rest.read_text() == ""
    printed = capsys.readouterr().out
    assert "absent and left out: not/here" in printed
    assert LEAK not in printed + figures.read_text() + (data / "labels.jsonl").read_text()

    labels = (data / "labels.jsonl").read_text().splitlines(keepends=True)
    (data / "labels.jsonl").write_text("".join(line for line in labels if "tokens.py" not in line))
    run_real(tmp_path / "repos", work, data=data, unlabelled=rest)
    assert [json.loads(line)["path"] for line in rest.read_text().splitlines()] == ["app/tokens.py"]


def test_the_files_of_a_commit_are_read_without_links_and_attributes(tmp_path, repository):
    git_dir = tmp_path / "repos" / "made+up" / "any"
    files = list_files(git_dir, repository.commit)
    read = {file.path: content.decode() for file, content in read_blobs(git_dir, files)}
    assert read == FILES | {".gitattributes": "tests export-ignore\n"}
    assert all(len(read[file.path]) == file.size for file in files)
    assert ChosenFile(repository, files[0]).header()["commit"] == repository.commit
