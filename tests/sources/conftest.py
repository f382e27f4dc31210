"""Create git repositories and scan them. Tokens are generated, so that the source tree contains none."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outcrop.domain.secret import reveal
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.rules.example_templates import expand_template
from outcrop.services import local_scan
from outcrop.services.local_scan import ScanOptions, ScanReport
from tests.support import rulesets
from tests.support.command import run_raw
from tests.support.git_host import NO_MAINTENANCE
from tests.support.rulesets import cached_in, only_github_rules

__all__ = ["only_github_rules"]

FIRST_DAY = 1_700_000_000  # the author date of a repository's first commit; each next commit is a day later
DAY = 86_400


def token(seed: str) -> str:
    """Return a generated token with a valid checksum, which a rule finds."""
    return expand_template("ghp_{{base62 30}}{{crc32_base62}}", seed)


class Repo:
    """A repository with a working tree, created without the configuration of this machine."""

    def __init__(self, path: Path, *init: str) -> None:
        self.path = path
        self.commits = 0
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main", *init)

    def copy_to(self, path: Path) -> "Repo":
        """Return a copy of the repository in another folder: that is quicker than to make it again."""
        shutil.copytree(self.path, path, symlinks=True)
        repo = copy(self)
        repo.path = path
        return repo

    def environment(self) -> dict[str, str]:
        authored = FIRST_DAY + DAY * self.commits
        return {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            **NO_MAINTENANCE,
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_AUTHOR_DATE": f"{authored} +0200",
            "GIT_COMMITTER_NAME": "Ben",
            "GIT_COMMITTER_EMAIL": "ben@example.org",
            "GIT_COMMITTER_DATE": f"{authored + 3_600} +0000",
        }

    def git(self, *arguments: str | bytes, given: bytes = b"", check: bool = True) -> str:
        ran = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=self.environment(),
            input=given,
            capture_output=True,
            check=False,
        )
        assert not check or ran.returncode == 0, ran.stderr
        return os.fsdecode(ran.stdout).strip()

    def write(self, path: str | bytes, content: str | bytes) -> None:
        file = self.path / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, files: dict[str, str | bytes] | None = None, *, remove: tuple[str, ...] = ()) -> str:
        """Write and remove files, commit the working tree, and return the id of the commit."""
        for path, content in (files or {}).items():
            self.write(path, content)
        for path in remove:
            (self.path / path).unlink()
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--no-verify", "-m", f"change {self.commits}")
        self.commits += 1
        return self.head()

    def commit_message(self, message: str) -> str:
        """Create a commit without changes that has this message; return its id."""
        self.git(
            "commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "-F", "-", given=message.encode()
        )
        self.commits += 1
        return self.head()

    def head(self) -> str:
        """Return the id of the current commit; from the file of the branch, without git, if there is one."""
        try:
            name = (self.path / ".git" / "HEAD").read_text().removeprefix("ref: ").strip()
            return (self.path / ".git" / name).read_text().strip()
        except OSError:
            return self.git("rev-parse", "HEAD")

    def blob(self, content: bytes, *options: str) -> str:
        """Write an object that nothing refers to, and return its id; by default a blob."""
        return self.git("hash-object", "-w", "--stdin", *options, given=content)

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        """Write a tree of (mode, name, id) without checking it, and return its id."""
        raw = b"".join(
            mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries
        )
        return self.blob(raw, "-t", "tree", "--literally")

    def commit_tree(self, tree: str, *parents: str) -> str:
        """Commit a tree, set the branch main to the commit, and return its id."""
        oid = self.git(
            "commit-tree",
            tree,
            "-m",
            "made by hand",
            *(part for parent in parents for part in ("-p", parent)),
        )
        self.git("update-ref", "refs/heads/main", oid)
        return oid

    def loose(self, oid: str) -> Path:
        """Return the file of a loose object."""
        return self.path / ".git" / "objects" / oid[:2] / oid[2:]


def read_objects(git_folder: Path) -> dict[str, tuple[str, bytes]]:
    """Return type and content of all objects of a repository, by id, as git reads them; in one process."""
    command = ["git", "--git-dir", git_folder, "cat-file", "--batch-all-objects", "--batch"]
    out = subprocess.run(command, capture_output=True, check=True).stdout
    objects, at = {}, 0
    while at < len(out):
        start = out.index(b"\n", at) + 1
        oid, kind, size = out[at : start - 1].decode().split()
        at = start + int(size) + 1
        objects[oid] = kind, out[start : at - 1]
    return objects


def without_override() -> None:
    """Drop the capabilities with which root reads and writes every file."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def changed_bytes(file: Path, at: int, count: int = 40) -> None:
    """Invert bytes of a file from offset `at`, which counts from the end if it is negative."""
    file.chmod(0o600)
    raw = bytearray(file.read_bytes())
    start = at % len(raw)
    for number in range(start, min(start + count, len(raw))):
        raw[number] ^= 0x5A
    file.write_bytes(raw)


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return all paths below a folder with mode, size and time of change."""
    found = {}
    for parent, folders, names in os.walk(folder):
        for name in (".", *folders, *names):
            status = Path(parent, name).lstat()
            found[f"{parent}/{name}"] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an XDG_CACHE_HOME with the compiled rules, the same for all tests of a process."""
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def ruleset() -> RuleSet:
    return rulesets.ruleset()


@dataclass(frozen=True)
class Scanned:
    """The report of a scan, with shortcuts for tests."""

    report: ScanReport

    @property
    def gaps(self) -> list[tuple[str, str]]:
        return self.report.gaps

    @property
    def findings(self) -> list[dict[str, Any]]:
        return [finding.fields for finding in self.report.findings]

    @property
    def secrets(self) -> list[str]:
        """The values, in the order of the findings."""
        return [reveal(finding.secret) for finding in self.report.findings]

    def of(self, value: str) -> dict[str, Any]:
        """Return the only finding of a value."""
        found = [finding.fields for finding in self.report.findings if reveal(finding.secret) == value]
        assert len(found) == 1, f"{len(found)} findings"
        return found[0]

    def has_gap(self, text: str) -> bool:
        """Whether a gap contains this text."""
        return any(text in f"{where}: {why}" for where, why in self.gaps)


Scan = Callable[..., Scanned]


@pytest.fixture
def scan(ruleset: RuleSet, tmp_path_factory: pytest.TempPathFactory) -> Scan:
    """Return a function that scans in this process, without a cache unless one is given."""

    def run(*targets: Path | str, jobs: int = 1, **options: Any) -> Scanned:
        work = tmp_path_factory.mktemp("work")
        settings = ScanOptions(ruleset=ruleset, jobs=jobs, work=work, **options)
        report = local_scan.scan([str(target) for target in targets], settings, lambda _: None)
        assert list(work.glob("work/scan-*")) == [], "a work folder was left"
        return Scanned(report)

    return run


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: bytes
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)
        return found


Outcrop = Callable[..., Ran]


@pytest.fixture
def command(cache_home: Path) -> tuple[list[str], dict[str, str]]:
    """Return the program with its first arguments, and its environment."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OUTCROP_", "GIT_"))
    }
    return [sys.executable, "-m", "outcrop"], environment | {"XDG_CACHE_HOME": str(cache_home)}


@pytest.fixture
def outcrop(command: tuple[list[str], dict[str, str]], cache_home: Path, tmp_path: Path) -> Outcrop:
    """Return a function that runs the command as users do.

    It is run in this process, unless it must have its own one: for environment variables, for a function to
    call before it, or for the limit of its time. A new process spends most of its time on loading.
    """

    def run(
        *arguments: str | Path,
        given: bytes = b"",
        before: Callable[[], None] | None = None,
        seconds: float | None = None,
        **more: str,
    ) -> Ran:
        if not before and not more and seconds is None:
            code, out, errors = run_raw(
                *arguments, folder=tmp_path, cache=cache_home, stdin=given, without=("OUTCROP_", "GIT_")
            )
            return Ran(code, out, errors.decode("utf-8", "backslashreplace"))
        program, environment = command
        ran = subprocess.run(
            [*program, *map(os.fspath, arguments)],
            env=environment | more,
            cwd=tmp_path,
            input=given,
            capture_output=True,
            check=False,
            timeout=seconds or 60,
            preexec_fn=before,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr.decode("utf-8", "backslashreplace"))

    return run


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")
