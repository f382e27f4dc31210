"""`outcrop git-hook`, with real commits and pushes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rulesets import cached_in, github_token

TOKEN = github_token("git hook")


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("home")
    identity = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | identity | {"HOME": str(home), "XDG_CACHE_HOME": str(cached_in(home / "cache"))}


@pytest.fixture
def call(tmp_path, environment):
    """Create a repository `work` with a commit, and a bare one `server`; return a function that runs a program."""

    def call(*command: str, folder: str = "work", stdin: str = "") -> subprocess.CompletedProcess[str]:
        if command[0] == "outcrop":
            command = (sys.executable, "-m", *command)
        return subprocess.run(
            command,
            cwd=tmp_path / folder,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    (tmp_path / "work").mkdir()
    (tmp_path / "server").mkdir()
    call("git", "init", "-q", "--bare", "-b", "main", folder="server")
    call("git", "init", "-q", "-b", "main")
    call("git", "remote", "add", "origin", "../server")
    commit(call, tmp_path / "work" / "clean.txt", "nothing")
    return call


def commit(call, file: Path, text: str) -> subprocess.CompletedProcess[str]:
    file.write_text(text)
    call("git", "add", "-A")
    return call("git", "commit", "-q", "-m", file.name)


def earlier_hook(folder: Path, name: str) -> Path:
    """Write a hook that appends its input to a file; return that file."""
    log, hook = folder / "earlier.log", folder / "hooks" / name
    hook.write_text(f"#!/bin/sh\necho called >> {log}\ncat >> {log}\n[ ! -e {folder}/stop ]\n")
    hook.chmod(0o755)
    return log


def test_pre_commit_calls_the_earlier_hook_and_remove_restores_it(call, tmp_path):
    work = tmp_path / "work"
    log = earlier_hook(work / ".git", "pre-commit")
    before = (work / ".git/hooks/pre-commit").read_bytes()
    for _ in range(2):  # a second time changes nothing
        assert call("outcrop", "git-hook", "install").returncode == 0
    refused = commit(call, work / "leak.txt", f"one\n{TOKEN}\n")
    assert refused.returncode == 1
    assert "outcrop: refused: leak.txt:2: github_pat_classic" in refused.stderr
    assert TOKEN not in refused.stderr + refused.stdout
    assert log.read_text() == "called\n"
    assert commit(call, work / "leak.txt", "one\n").returncode == 0
    (work / ".git/stop").touch()
    assert commit(call, work / "clean.txt", "more").returncode == 1
    assert call("outcrop", "git-hook", "remove").returncode == 0
    assert (work / ".git/hooks/pre-commit").read_bytes() == before
    assert sorted(
        path.name for path in (work / ".git/hooks").glob("pre-commit*") if path.suffix != ".sample"
    ) == ["pre-commit"]
    repeated = call("outcrop", "git-hook", "remove")
    assert (repeated.returncode, repeated.stderr.count("\n")) == (2, 1)


def test_pre_receive_refuses_a_leak_in_any_new_commit_and_nothing_old(call, tmp_path):
    work, server = tmp_path / "work", tmp_path / "server"
    commit(call, work / "old.txt", f"{github_token('old leak')}\n")
    assert call("git", "push", "-q", "origin", "main").returncode == 0
    log = earlier_hook(server, "pre-receive")
    assert call("outcrop", "git-hook", "install", "--type", "pre-receive", folder="server").returncode == 0
    commit(call, work / "clean.txt", "more")
    clean = call("git", "push", "-q", "origin", "main", "main:topic")
    assert (clean.returncode, clean.stderr) == (0, "")
    assert len(log.read_text().splitlines()) == 3
    tip = call("git", "rev-parse", "HEAD", folder="server").stdout
    commit(call, work / "leak.txt", f"one\n{TOKEN}\n")
    call("git", "rm", "-q", "leak.txt")
    call("git", "commit", "-q", "-m", "gone")
    refused = call("git", "push", "-q", "origin", "main", "HEAD:refs/heads/other")
    assert refused.returncode == 1
    assert "outcrop: refused: leak.txt:2: github_pat_classic, commit " in refused.stderr
    assert "old.txt" not in refused.stderr
    assert TOKEN not in refused.stderr
    assert call("git", "rev-parse", "HEAD", folder="server").stdout == tip
    assert call("git", "push", "-q", "origin", ":topic").returncode == 0
    wrong = call("outcrop", "git-hook", "run", "--type", "pre-receive", folder="server", stdin="a b c\n")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_pre_receive_takes_a_push_of_1000_commits_within_5_seconds_of_cpu_time(call, tmp_path):
    stream = "".join(
        f"commit refs/heads/main\ncommitter a <a> {1_700_000_000 + n} +0000\ndata 1\nx\n"
        f"M 644 inline f{n % 50}.py\ndata <<END\nvalue = {n}\nEND\n\n"
        for n in range(1_000)
    )
    call("git", "checkout", "-q", "--orphan", "long")
    assert call("git", "fast-import", "--quiet", "--force", stdin=stream).returncode == 0
    assert call("outcrop", "git-hook", "install", "--type", "pre-receive", folder="server").returncode == 0
    before = os.times()
    ran = call("git", "push", "-q", "origin", "main")
    spent = os.times()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert call("git", "rev-list", "--count", "main", folder="server").stdout.strip() == "1000"
    assert spent.children_user + spent.children_system - before.children_user - before.children_system < 5


def test_pre_push_scans_what_no_remote_branch_has(call, tmp_path):
    work = tmp_path / "work"
    commit(call, work / "old.txt", f"{github_token('old leak')}\n")
    call("git", "push", "-q", "origin", "main")
    assert call("outcrop", "git-hook", "install", "--type", "pre-push").returncode == 0
    commit(call, work / "new.txt", "more")
    assert call("git", "push", "-q", "origin", "main", "main:topic").returncode == 0
    commit(call, work / "leak.txt", TOKEN)
    refused = call("git", "push", "-q", "origin", "main:another")
    assert refused.returncode == 1
    assert "leak.txt:1" in refused.stderr
    assert "old.txt" not in refused.stderr


def test_an_earlier_hook_gets_the_same_input_also_none(call, tmp_path):
    log = earlier_hook(tmp_path / "work" / ".git", "pre-push")
    assert call("outcrop", "git-hook", "install", "--type", "pre-push").returncode == 0
    hook = str(tmp_path / "work/.git/hooks/pre-push")
    assert call("sh", hook, stdin="").returncode == 0
    assert log.read_text() == "called\n"


def test_a_hook_that_git_would_not_call_is_not_installed(call, tmp_path, environment):
    settings = Path(environment["HOME"]) / ".gitconfig"
    settings.write_text(f"[core]\nhooksPath = {tmp_path / 'elsewhere'}\n")
    try:
        refused = call("outcrop", "git-hook", "install")
    finally:
        settings.unlink()
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "core.hooksPath is set" in refused.stderr
    assert not (tmp_path / "work/.git/hooks/pre-commit").exists()


def test_a_folder_without_a_repository_is_one_line(call, tmp_path):
    (tmp_path / "none").mkdir()
    ran = call("outcrop", "git-hook", "install", folder="none")
    assert (ran.returncode, ran.stderr) == (2, "outcrop: the current folder is in no git repository\n")
