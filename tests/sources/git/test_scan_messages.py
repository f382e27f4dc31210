"""Find values in the messages of commits and tags, and in files that only a tag names."""

import base64
from pathlib import Path

import pytest

from tests.sources.conftest import Repo, Scan, changed_bytes, token

FIRST, SECOND, THIRD = token("first"), token("second"), token("third")
COMMIT, TAG = ".git/COMMIT_EDITMSG", ".git/TAG_EDITMSG"


@pytest.fixture(params=["loose", "packed", "sha256"])
def message_repo(request: pytest.FixtureRequest, tmp_path: Path) -> Repo:
    """Write three commits with a value in the message of the second."""
    repo = Repo(tmp_path / "message_repo", *(["--object-format=sha256"] if request.param == "sha256" else []))
    repo.commit({"a": "clean\n"})
    repo.commit_message(f"try the new key\n\ncurl -H 'Authorization: token {FIRST}'\n")
    repo.commit({"a": "clean\nstill\n"})
    if request.param == "packed":
        repo.git("repack", "-adfq")
    return repo


def test_a_value_in_a_message_is_reported_with_its_commit_and_line(message_repo: Repo, scan: Scan) -> None:
    report = scan(message_repo.path)
    found = report.of(FIRST)
    assert (found["file_path"], found["line_number"], found["column"]) == (COMMIT, 3, 31)
    assert found["commit"] == message_repo.git("rev-parse", "HEAD~1")
    assert found["author"] == "Ada <ada@example.org>"
    assert (found["source_type"], found["current_line"], found["unreachable"]) == ("commit", None, False)
    assert report.gaps == []


def test_messages_are_not_counted_as_files(message_repo: Repo, scan: Scan) -> None:
    assert scan(message_repo.path).report.files == 2


def test_a_rescan_reports_the_same_values_and_those_of_new_messages(
    message_repo: Repo, scan: Scan, tmp_path: Path
) -> None:
    first = scan(message_repo.path, cache=tmp_path / "cache")
    assert (
        scan(message_repo.path, cache=tmp_path / "cache").findings
        == first.findings
        == scan(message_repo.path).findings
    )
    message_repo.commit_message(f"{SECOND}\n")
    assert sorted(scan(message_repo.path, cache=tmp_path / "cache").secrets) == sorted([FIRST, SECOND])


def test_the_oldest_message_that_has_a_value_counts(message_repo: Repo, scan: Scan) -> None:
    message_repo.commit_message(f"again {FIRST}\n")
    assert scan(message_repo.path).of(FIRST)["commit"] == message_repo.git("rev-parse", "HEAD~2")


def test_a_message_that_no_ref_reaches_is_unreachable(message_repo: Repo, scan: Scan) -> None:
    message_repo.git("reset", "--quiet", "--hard", "HEAD~2")
    (message_repo.path / ".git" / "logs" / "HEAD").unlink()
    found = scan(message_repo.path).of(FIRST)
    assert (found["unreachable"], found["file_path"], found["line_number"]) == (True, None, 3)


def test_the_header_of_a_commit_is_not_scanned(repo: Repo, scan: Scan) -> None:
    """Signatures and names are not scanned, and a commit may have no message."""
    tree = repo.git("write-tree")
    person = f"{FIRST} <a@example.org> 1700000000 +0000"
    signature = f"-----BEGIN PGP SIGNATURE-----\n \n {SECOND}\n -----END PGP SIGNATURE-----"
    head = f"tree {tree}\nauthor {person}\ncommitter {person}\ngpgsig {signature}\n"
    for message in ("", "\nsigned\n", f"\n{THIRD}\n"):
        repo.git(
            "update-ref",
            "refs/heads/main",
            repo.blob((head + message).encode(), "-t", "commit", "--literally"),
        )
        repo.git("tag", f"t{len(message)}")
    report = scan(repo.path)
    assert report.secrets == [THIRD]
    assert report.of(THIRD)["line_number"] == 1


@pytest.mark.parametrize("behind", [0, 3_000_000], ids=["at the end", "in the middle"])
def test_a_value_in_a_message_of_megabytes_is_found(repo: Repo, scan: Scan, behind: int) -> None:
    repo.commit({"a": "clean\n"})
    repo.commit_message("words and words\n" * 200_000 + f"key {FIRST}\n" + "x y\n" * (behind // 4))
    repo.commit({"b": f"{SECOND}\n"})
    report = scan(repo.path)
    assert report.of(FIRST)["line_number"] == 200_001
    assert report.of(SECOND)["file_path"] == "b"
    assert report.gaps == []


def test_a_message_is_decoded_as_a_file_is(repo: Repo, scan: Scan) -> None:
    repo.commit_message(f"see {base64.b64encode(f'token={FIRST}'.encode()).decode()}\n")
    assert scan(repo.path).of(FIRST)["encoding"] == ["base64"]


def test_a_message_can_be_ignored_like_a_file(message_repo: Repo, scan: Scan) -> None:
    message_repo.commit({".outcropignore": f"{COMMIT}\n"})
    assert scan(message_repo.path).secrets == []


def test_since_reads_the_messages_of_the_commits_after_it(message_repo: Repo, scan: Scan) -> None:
    assert scan(message_repo.path, since="HEAD~1").secrets == []
    found = scan(message_repo.path, since="HEAD~2").of(FIRST)
    assert (found["file_path"], found["commit"]) == (COMMIT, message_repo.git("rev-parse", "HEAD~1"))


def test_since_reports_a_value_that_an_older_message_had(message_repo: Repo, scan: Scan) -> None:
    commit = message_repo.commit_message(f"once more {FIRST}\n")
    assert scan(message_repo.path, since="HEAD~1").of(FIRST)["commit"] == commit


# Tags


def test_a_value_in_the_message_of_a_tag_is_reported_with_the_commit_of_the_tag(
    repo: Repo, scan: Scan
) -> None:
    commit = repo.commit({"a": "clean\n"})
    repo.git("tag", "-a", "v1", "-m", f"release\n\nkey: {FIRST}")
    repo.commit({"a": "clean\nstill\n"})
    report = scan(repo.path)
    found = report.of(FIRST)
    assert (found["file_path"], found["line_number"], found["commit"]) == (TAG, 3, commit)
    assert (found["source_type"], found["unreachable"]) == ("commit", False)
    assert report.gaps == []


def test_the_messages_of_a_tag_and_of_the_tag_that_it_names_are_scanned(repo: Repo, scan: Scan) -> None:
    commit = repo.commit({"a": "clean\n"})
    repo.git("tag", "-a", "inner", "-m", FIRST)
    repo.git("tag", "-a", "outer", "-m", SECOND, "inner")
    repo.git("tag", "-d", "inner")
    report = scan(repo.path)
    for value in (FIRST, SECOND):
        found = report.of(value)
        assert (found["file_path"], found["commit"], found["unreachable"]) == (TAG, commit, False)
    assert report.gaps == []


def test_forty_nested_tags_are_followed(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    oid, kind = repo.git("rev-parse", "HEAD"), "commit"
    for number in range(40):
        message = SECOND if number == 39 else number
        tagger = "tagger A <a@example.org> 1700000000 +0000"
        raw = f"object {oid}\ntype {kind}\ntag {number}\n{tagger}\n\n{message}\n"
        oid, kind = repo.blob(raw.encode(), "-t", "tag", "--literally"), "tag"
    repo.git("update-ref", "refs/tags/last", oid)
    repo.git("update-ref", "-d", "refs/heads/main")
    report = scan(repo.path)
    assert report.of(FIRST)["commit"] == report.of(SECOND)["commit"]
    assert report.gaps == []


def test_the_message_of_a_deleted_tag_is_unreachable(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.git("tag", "-a", "v1", "-m", FIRST)
    repo.git("tag", "-d", "v1")
    assert scan(repo.path).of(FIRST)["unreachable"]


@pytest.mark.parametrize("annotated", [False, True])
def test_a_file_that_only_a_tag_names_is_reported_at_the_name_of_the_tag(
    repo: Repo, scan: Scan, annotated: bool
) -> None:
    repo.commit({"a": "clean\n"})
    repo.git("tag", *(["-a", "-m", "a key"] if annotated else []), "key", repo.blob(f"x\n{FIRST}\n".encode()))
    report = scan(repo.path)
    found = report.of(FIRST)
    assert (found["file_path"], found["line_number"], found["commit"], found["unreachable"]) == (
        "refs/tags/key",
        2,
        None,
        False,
    )
    assert report.gaps == []


@pytest.mark.parametrize("annotated", [False, True])
def test_a_file_of_a_tree_that_only_a_tag_names_is_reported_at_its_path(
    repo: Repo, scan: Scan, annotated: bool
) -> None:
    repo.commit({"a": "clean\n"})
    repo.write("deep/b", f"{FIRST}\n")
    repo.git("add", "--all")
    repo.git("tag", *(["-a", "-m", "a tree"] if annotated else []), "tree", repo.git("write-tree"))
    repo.git("reset", "--quiet", "--hard")
    report = scan(repo.path)
    found = report.of(FIRST)
    assert (found["file_path"], found["commit"], found["unreachable"]) == ("deep/b", None, False)
    assert report.gaps == []


def test_a_file_of_a_tag_that_a_commit_has_too_is_attributed_to_the_commit(repo: Repo, scan: Scan) -> None:
    commit = repo.commit({"a": f"{FIRST}\n"})
    repo.git("tag", "key", "HEAD:a")
    repo.git("tag", "tree", "HEAD^{tree}")
    found = scan(repo.path).of(FIRST)
    assert (found["file_path"], found["commit"], found["source_type"]) == ("a", commit, "repo")


def test_a_tag_of_a_missing_object_is_a_gap_and_its_message_is_scanned(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{SECOND}\n"})
    raw = f"object {'1' * 40}\ntype commit\ntag v1\ntagger A <a@example.org> 1700000000 +0000\n\n{FIRST}\n"
    repo.git("update-ref", "refs/tags/v1", repo.blob(raw.encode(), "-t", "tag", "--literally"))
    report = scan(repo.path)
    assert sorted(report.secrets) == sorted([FIRST, SECOND])
    assert report.has_gap("1 refs point at objects that are missing")


def test_a_damaged_head_commit_is_a_gap(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    head = repo.commit({"a": "still\n"})
    changed_bytes(repo.loose(head), 8)
    assert scan(repo.path).has_gap(f"object {head}: object is missing or damaged")


def test_the_author_is_decoded_in_the_encoding_of_the_commit(repo: Repo, scan: Scan) -> None:
    repo.write("a", f"{FIRST}\n")
    repo.git("add", "--all")
    tree = repo.git("write-tree")
    for encoding, name in (
        ("ISO-8859-1", "Jürgen".encode("latin-1")),
        ("no-such-thing", "Jürgen".encode()),
        ("hex", "Jürgen".encode()),
    ):
        person = name + b" <j@example.org> 1700000000 +0000"
        raw = b"tree %s\nauthor %s\ncommitter %s\nencoding %s\n\nmade\n" % (
            tree.encode(),
            person,
            person,
            encoding.encode(),
        )
        repo.git("update-ref", "refs/heads/main", repo.blob(raw, "-t", "commit", "--literally"))
        assert scan(repo.path).of(FIRST)["author"] == "Jürgen <j@example.org>"
