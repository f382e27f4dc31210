"""Write the example's commits into bare git repositories."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from outcrop.demo.planted import fill_template
from outcrop.demo.repositories import DemoCommit, DemoRepository
from outcrop.domain.errors import OperatorError

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def publish(repository: DemoRepository, folder: Path, now: datetime, *, later: bool) -> None:
    """Write a repository in its first state, or with its later commits."""
    if not later or repository.rewritten:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _git(folder, "init", "--quiet", "--bare", "--template=", "--initial-branch=main", ".")
    elif not repository.later:
        return
    commits = repository.later if later else repository.commits
    grows = later and not repository.rewritten  # append to the existing history
    _git(folder, "fast-import", "--quiet", "--force", stdin=b"".join(_stream(commits, now, grows=grows)))


def push(repository: DemoRepository, folder: Path, now: datetime) -> None:
    """Append the commits that the story pushes at its end."""
    stream = b"".join(_stream(repository.pushed, now, grows=True))
    _git(folder, "fast-import", "--quiet", "--force", stdin=stream)


def last_pushed(folder: Path) -> str:
    """Return the time of the newest commit, as git prints it."""
    return _git(
        folder,
        "for-each-ref",
        "--sort=-committerdate",
        "--count=1",
        "--format=%(committerdate:iso-strict)",
        "refs/heads",
    ).strip()


def _stream(commits: tuple[DemoCommit, ...], now: datetime, *, grows: bool) -> Iterator[bytes]:
    """Yield commits in the format of `git fast-import`; `grows`: the first one continues main."""
    for number, commit in enumerate(commits):
        at = int((now - timedelta(days=commit.days_ago)).timestamp())
        yield f"commit refs/heads/{commit.branch}\n".encode()
        yield f"author {commit.author} {at} +0000\ncommitter {commit.author} {at} +0000\n".encode()
        yield _data(commit.message)
        if commit.start:
            yield b"from refs/heads/main\n"
        elif grows and number == 0:
            yield b"from refs/heads/main^0\n"
        for path, template in commit.changes.items():
            if template is None:
                yield f"D {path}\n".encode()
            else:
                yield f"M 100644 inline {path}\n".encode() + _data(fill_template(template))


def _data(text: str) -> bytes:
    """Return a data command of `git fast-import`."""
    content = text.encode()
    return b"data %d\n%s\n" % (len(content), content)


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Run git in a folder and return its output; raise OperatorError if it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=ENVIRONMENT, input=stdin, capture_output=True, check=True
        )
    except FileNotFoundError:
        raise OperatorError("the demo needs git: install it and try again") from None
    except subprocess.CalledProcessError as error:
        raise OperatorError(
            f"cannot write the example: git {arguments[0]}: {error.stderr.decode(errors='replace').strip()}"
        ) from None
    return done.stdout.decode()
