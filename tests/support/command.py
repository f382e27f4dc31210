"""Run commands in this process, which is faster than a new process that must load everything."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from outcrop.cli import run_command


@dataclass(frozen=True)
class Ran:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output, parsed as JSON."""
        return json.loads(self.out)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Change the working directory for the body."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run(*arguments: str | Path, folder: Path, cache: Path, stdin: bytes = b"") -> Ran:
    """Run `outcrop` with these arguments in a folder, with its own cache."""
    code, out, err = run_raw(*arguments, folder=folder, cache=cache, stdin=stdin)
    return Ran(code, out.decode(), err.decode())


def run_raw(
    *arguments: str | Path, folder: Path, cache: Path, stdin: bytes = b"", without: tuple[str, ...] = ()
) -> tuple[int, bytes, bytes]:
    """Run a command as `run` does; return its exit code and the bytes of its output and of its errors.

    The command does not have the environment variables that begin with one of the texts in `without`.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    patches = [
        mock.patch.dict(
            os.environ, kept | {"XDG_CACHE_HOME": str(cache), "COLUMNS": "200", "TERM": "dumb"}, clear=True
        ),
        mock.patch.object(sys, "argv", ["outcrop", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
    ]
    code = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(_inside(folder))
        for patch in patches:
            stack.enter_context(patch)
        try:
            run_command()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    return code, out.buffer.getvalue(), err.buffer.getvalue()  # type: ignore[attr-defined]
