"""The file of labels: what is accepted, and how answers become labels."""

import json

import pytest

from bench.accuracy.labels import Label, by_key, parse_label, read_files, read_labels, write_labels
from bench.accuracy.merge import merge
from bench.accuracy.repositories import DATA, read_list
from bench.accuracy.scans import digest_of

GOOD = {
    "repo": "o/r",
    "commit": "0" * 40,
    "path": "a.env",
    "line": 3,
    "digest": "0a1b2",
    "rule": "jwt",
    "label": "leak",
    "by": 1,
}


def test_a_good_label():
    assert parse_label(json.dumps(GOOD)) == Label("o/r", "a.env", 3, "0a1b2", 1, "0" * 40, "jwt", "leak")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"label": "maybe"}, "label is leak, example or false"),
        ({"by": 3}, "by is 1 or 2"),
        ({"by": True}, "by is 1 or 2"),
        ({"line": 0}, "line is 1 or more"),
        ({"digest": "0a1b2c"}, "digest is 5 hex digits"),
        ({"commit": "main"}, "commit is 40 hex digits"),
        ({"path": ""}, "texts are strings"),
        ({"value": "x"}, "the fields of a label are"),
    ],
)
def test_a_wrong_label_is_refused(change, problem):
    with pytest.raises(ValueError, match=problem):
        parse_label(json.dumps(GOOD | change))


def test_the_labels_of_the_tree_are_enough_and_of_the_listed_commits():
    labels, files = read_labels(DATA / "labels.jsonl"), read_files(DATA / "read_files.jsonl")
    first, second = by_key(labels, 1), by_key(labels, 2)
    assert len(first) >= 1_500
    assert len(files) == len(set(files)) >= 300
    assert len(second) >= 0.1 * len(first)
    assert second.keys() <= first.keys()
    commits = {(listed.repo, listed.commit) for listed in read_list()}
    assert {(label.repo, label.commit) for label in labels} <= commits
    assert {(file.repo, file.commit) for file in files} <= commits


def test_two_labels_of_one_reader_for_one_value_are_refused(tmp_path):
    file = tmp_path / "labels.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n{json.dumps(GOOD | {'by': 2})}\n{json.dumps(GOOD | {'line': 9})}\n")
    with pytest.raises(SystemExit, match=r"labels\.jsonl:3: a second label of reader 1"):
        read_labels(file)


def test_labels_are_written_in_a_fixed_order(tmp_path):
    labels = [parse_label(json.dumps(GOOD | {"path": path})) for path in ("b", "a", "c")]
    write_labels(labels, tmp_path / "one")
    write_labels(reversed(labels), tmp_path / "two")
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    assert set(read_labels(tmp_path / "one")) == set(labels)


def write_jsonl(file, *entries):
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_answers_become_labels(tmp_path):
    card = {key: GOOD[key] for key in ("repo", "commit", "path", "line", "digest")}
    write_jsonl(tmp_path / "tune-01.jsonl", {"card": "1a", **card, "rule": "jwt"})
    write_jsonl(tmp_path / "tune.index", {"card": "1a", "rule": "jwt"})
    write_jsonl(tmp_path / "second-tune-01.jsonl", {"card": "s1a", **card})
    write_jsonl(tmp_path / "second-tune.index", {"card": "s1a", "rule": "jwt"}, {"card": "s2", "rule": "x"})
    (tmp_path / "files").mkdir()
    header = {"repo": "o/r", "commit": "0" * 40, "path": "b.env"}
    (tmp_path / "files" / "001.txt").write_text(f"# {json.dumps(header)}\n1\ta=1\n2\tpassword=Tr0ub4dor\n")
    write_jsonl(
        tmp_path / "labels-tune-01.jsonl",
        {"card": "1a", "label": "example"},
        {"card": "none", "label": "leak"},
        {"card": "1a", "label": "leak"},
    )
    write_jsonl(tmp_path / "labels-second-tune-01.jsonl", {"card": "s1a", "label": "false"})
    write_jsonl(
        tmp_path / "labels-files-01.jsonl",
        {"file": "001", "line": 2, "value": "Tr0ub4dor", "label": "example"},
        {"file": "001", "line": 1, "value": "Tr0ub4dor", "label": "example"},
        {"file": "001", "read": True},
    )
    assert merge(tmp_path, tmp_path, tmp_path) == [
        "no such card or label: none leak",
        "no answer: s2",
        "001:1: the value is not in this line",
    ]
    assert [(label.path, label.by, label.label) for label in read_labels(tmp_path / "labels.jsonl")] == [
        ("a.env", 1, "leak"),
        ("a.env", 2, "false"),
        ("b.env", 1, "example"),
    ]
    assert read_labels(tmp_path / "labels.jsonl")[2].digest == digest_of("Tr0ub4dor")
    assert [json.loads(line) for line in (tmp_path / "read_files.jsonl").read_text().splitlines()] == [header]


def test_merging_twice_changes_nothing(tmp_path):
    test_answers_become_labels(tmp_path)
    before = (tmp_path / "labels.jsonl").read_text()
    merge(tmp_path, tmp_path, tmp_path)
    assert (tmp_path / "labels.jsonl").read_text() == before
