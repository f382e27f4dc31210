"""Our hook for pre-commit, run by pre-commit itself in a repository whose leak is committed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rulesets import cached_in, github_token

ROOT = Path(__file__).parents[2]
OLD, STAGED, BETWEEN = github_token("hook old"), github_token("hook staged"), github_token("hook between")
# The manifest is YAML without anything that needs a parser: `key: value`, with comments.
HOOK = dict(
    line[2:].split("  #")[0].split(": ", 1) for line in (ROOT / ".pre-commit-hooks.yaml").read_text().splitlines()
)  # fmt: skip


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("home")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    identity = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PRE_COMMIT"))}
    return kept | identity | {
        "HOME": str(home),
        "PATH": programs,
        "PRE_COMMIT_HOME": str(home / "pre-commit"),
        "XDG_CACHE_HOME": str(cached_in(home / "cache")),
    }  # fmt: skip


@pytest.fixture
def call(tmp_path, environment):
    """Create a repository whose first commit has a leak; return a function that runs a program in it."""
    manifest = HOOK | {"language": "system", "entry": f"{HOOK['entry']} --json"}
    hook = "".join(f"        {name}: {value}\n" for name, value in manifest.items() if name != "id")
    config = f"repos:\n  - repo: local\n    hooks:\n      - id: outcrop\n{hook}"
    (tmp_path / ".pre-commit-config.yaml").write_text(config)
    (tmp_path / "old.txt").write_text(f"{OLD}\n")

    def call(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    for command in ("init -q -b main", "add -A", "commit -q -m first"):
        assert call("git", *command.split()).returncode == 0
    return call


def found(ran: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the paths that the hook reported in what pre-commit printed."""
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("[{")] or ["[]"]
    paths = sorted(finding["file_path"] for finding in json.loads(line))
    assert (ran.returncode == 1) is bool(paths), ran.stdout
    assert ("Passed" in ran.stdout) is not bool(paths), ran.stdout
    return paths


def test_all_files_are_those_of_the_working_tree_and_nothing_else(call, tmp_path):
    (tmp_path / "untracked.txt").write_text(f"{github_token('untracked')}\n")
    assert found(call("pre-commit", "run", "--all-files")) == ["old.txt"]
    assert found(call("pre-commit", "run")) == []  # nothing is staged
    (tmp_path / "old.txt").write_text(f"{OLD}\n# changed\n")
    config = tmp_path / ".pre-commit-config.yaml"
    config.write_text(config.read_text() + "# changed\n")
    call("git", "add", "-u")  # all tracked files are staged now, and the leak is not new
    assert found(call("pre-commit", "run")) == []
    assert found(call("pre-commit", "run", "--all-files")) == ["old.txt"]
    assert found(call("pre-commit", "run", "--files", "old.txt")) == ["old.txt"]


def test_what_is_staged_and_the_commits_between_two_revisions(call, tmp_path):
    call("pre-commit", "install")
    (tmp_path / "staged.txt").write_text(f"{STAGED}\n")
    call("git", "add", "staged.txt")
    assert found(call("pre-commit", "run")) == ["staged.txt"]
    refused = call("git", "commit", "-m", "second")
    assert refused.returncode == 1
    assert "staged.txt" in refused.stderr + refused.stdout
    assert STAGED not in refused.stderr + refused.stdout
    call("git", "rm", "-q", "--cached", "staged.txt")
    (tmp_path / "between.txt").write_text(f"{BETWEEN}\n")
    call("git", "add", "between.txt")
    assert call("git", "commit", "-q", "--no-verify", "-m", "leak").returncode == 0
    call("git", "rm", "-q", "between.txt")
    assert call("git", "commit", "-q", "-m", "gone").returncode == 0
    between = ["pre-commit", "run", "--from-ref", "HEAD~2", "--to-ref"]
    assert found(call(*between, "HEAD")) == ["between.txt"]
    assert found(call(*between, "HEAD~2")) == []


def test_a_push_is_refused_for_a_leak_in_any_of_its_commits(call, tmp_path):
    remote = tmp_path / "remote.git"
    call("git", "init", "-q", "--bare", str(remote))
    call("git", "remote", "add", "origin", str(remote))
    call("pre-commit", "install", "--hook-type", "pre-push")
    call("git", "rm", "-q", "old.txt")
    call("git", "commit", "-q", "-m", "gone")
    ran = call("git", "push", "origin", "main")
    assert ran.returncode == 1, ran.stderr
    assert "old.txt" in ran.stderr + ran.stdout
