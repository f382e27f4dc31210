"""Patterns of a .gitignore file match the same paths as in git."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from outcrop.sources.gitignore import IgnorePatterns
from tests.sources.conftest import Repo, Scan, token

NAMES = [
    b"a.txt", b"src/a.txt", b"src/b/c.txt", b"build/x", b"docs/build/y", b"keep.log", b"x.log",
    b"deep/a/b/k.pem", b"#hash", b"!bang", b"sp ace", b"tr ", b"lib/keep.me", b"lib/drop.me",
    "\u00fcn\u00ef.txt".encode(), b"A.TXT", b"[b].txt", b"star*.txt", b"\xfc.txt", b"a!b",
]  # fmt: skip
FILES = {
    "a name": b"a.txt\n",
    "anchored": b"/a.txt\n",
    "folders": b"build/\n",
    "an anchored folder": b"/build/\n",
    "negated": b"*.log\n!keep.log\n",
    "negated in a folder that is ignored": b"lib/\n!lib/keep.me\n",
    "negated in a folder whose files are ignored": b"lib/*\n!lib/keep.me\n",
    "everything except": b"*\n!*/\n!*.log\n",
    "any folders": b"**/k.pem\ndeep/**\nsrc/**/c.txt\n",
    "comments and escapes": b"\\#hash\n#a.txt\n\\!bang\nstar\\*.txt\n\\[b\\].txt\n",
    "spaces": b"sp ace  \ntr\\ \n",
    "line ends of Windows": b"a.txt\r\nbuild/\r\n",
    "a byte order mark": b"\xef\xbb\xbfa.txt\nx.log\n",
    "letters that are not ASCII": "\u00fcn\u00ef.txt\n".encode(),
    "no UTF-8": b"\xfc.txt\na.txt\n",
    "lines that are not patterns": b"!\na.txt\n/\nfoo\\\n",
    "nothing but a line break ends a line": b"a.txt\x0bx.log\n\x0c\nx.log\n",
    "an exclamation mark, which also separates archive and member": b"a!b\n",
    "no line break at the end": b"a.txt",
    "nothing": b"\n   \n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_the_same_files_are_ignored_as_by_git(tmp_path: Path, text: bytes) -> None:
    repo = Repo(tmp_path / "repo")
    for name in NAMES:
        repo.write(name, "x")
    repo.write(".gitignore", text)
    command = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=repo.path, env=repo.environment(), capture_output=True, check=True)
    patterns = IgnorePatterns(text)
    assert sorted(name for name in NAMES if not patterns.ignores_path_or_parent(name)) == sorted(
        {*listed.stdout.split(b"\0")} & {*NAMES}
    )


@pytest.mark.parametrize("kind", ["folder", "git"])
def test_an_exclamation_mark_in_a_name_is_no_member_of_an_archive(
    tmp_path: Path, scan: Scan, kind: str
) -> None:
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
    assert [finding["file_path"] for finding in scan(repo.path, type=kind).findings] == [
        "a!b",
        "y!.zip!inside",
    ]


def test_a_gitignore_with_a_malformed_line_still_applies(tmp_path: Path, scan: Scan) -> None:
    for name, text in {"a": token("a"), "b": token("b"), ".gitignore": "!\na\n"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / os.fsdecode(b"\xff")).write_text(token("c"))
    assert [finding["file_path"] for finding in scan(tmp_path, gitignore=True).findings] == ["b", "\\xff"]
