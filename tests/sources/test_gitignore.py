"""A file in the syntax of .gitignore names here what it names for git."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from outcrop.sources.gitignore import IgnorePatterns
from tests.sources.conftest import Repo, Scan, token

NAMES = [
    b"a.txt", b"src/a.txt", b"src/b/c.txt", b"build/x", b"docs/build/y", b"keep.log", b"x.log", b"deep/a/b/k.pem", b"#hash", b"!bang",
    b"sp ace", b"tr ", b"lib/keep.me", b"lib/drop.me", "\u00fcn\u00ef.txt".encode(), b"A.TXT", b"[b].txt", b"star*.txt",
    b"\xfc.txt", b"a!b",
]  # fmt: skip
FILES = {
    "a name": b"a.txt\n",
    "anchored": b"/a.txt\n",
    "folders": b"build/\n",
    "an anchored folder": b"/build/\n",
    "brought back": b"*.log\n!keep.log\n",
    "not brought back from a folder that is left out": b"lib/\n!lib/keep.me\n",
    "brought back from a folder whose files are": b"lib/*\n!lib/keep.me\n",
    "all but": b"*\n!*/\n!*.log\n",
    "any folders": b"**/k.pem\ndeep/**\nsrc/**/c.txt\n",
    "notes and escapes": b"\\#hash\n#a.txt\n\\!bang\nstar\\*.txt\n\\[b\\].txt\n",
    "spaces": b"sp ace  \ntr\\ \n",
    "line ends of Windows": b"a.txt\r\nbuild/\r\n",
    "a mark of the encoding": b"\xef\xbb\xbfa.txt\nx.log\n",
    "other letters": "\u00fcn\u00ef.txt\n".encode(),
    "no UTF-8": b"\xfc.txt\na.txt\n",
    "lines that are no pattern": b"!\na.txt\n/\nfoo\\\n",
    "nothing but a line break ends a line": b"a.txt\x0bx.log\n\x0c\nx.log\n",
    "a sign that also divides archive and member": b"a!b\n",
    "no end": b"a.txt",
    "nothing": b"\n   \n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_what_is_left_out_is_what_git_leaves_out(tmp_path: Path, text: bytes) -> None:
    repo = Repo(tmp_path / "repo")
    for name in NAMES:
        repo.write(name, "x")
    repo.write(".gitignore", text)
    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    left = subprocess.run(command, cwd=repo.path, env=repo.environment(), capture_output=True, check=True)
    ignoring = IgnorePatterns(text)
    assert sorted(name for name in NAMES if not ignoring.ignores_path_or_parent(name)) == sorted(
        {*left.stdout.split(b"\0")} & {*NAMES}
    )


@pytest.mark.parametrize("kind", ["folder", "git"])
def test_a_sign_in_a_name_is_no_member_of_an_archive(tmp_path: Path, scan: Scan, kind: str) -> None:
    repo = Repo(tmp_path / "repo")
    repo.commit(
        {
            "a": "clean\n",
            "a!b": token("1"),
            "!c": token("2"),
            "d!e": token("3"),
            ".outcropignore": "/a\n/!c\n/d!e\nz.zip\n",
        }
    )
    for name in ("z.zip", "y!.zip"):
        with zipfile.ZipFile(repo.path / name, "w") as archive:
            archive.writestr("inside", token(name))
    repo.commit()
    assert [one["file_path"] for one in scan(repo.path, type=kind).findings] == ["a!b", "y!.zip!inside"]


def test_a_gitignore_with_a_line_that_is_no_pattern_still_counts(tmp_path: Path, scan: Scan) -> None:
    for name, text in {"a": token("a"), "b": token("b"), ".gitignore": "!\na\n"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / os.fsdecode(b"\xff")).write_text(token("c"))
    assert [one["file_path"] for one in scan(tmp_path, gitignore=True).findings] == ["b", "\\xff"]
