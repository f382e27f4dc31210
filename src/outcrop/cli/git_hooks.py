"""The commands `outcrop git-hook`: hooks of a repository that stop credentials."""

import os
import re
import shlex
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from outcrop.domain.errors import BadInputError, OperatorError
from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.load import load_ruleset
from outcrop.services.local_scan import Push, ScanOptions, scan
from outcrop.sources.fork_pool import count_cores
from outcrop.sources.git.ref_files import OID
from outcrop.sources.git.repository import find_git_folder
from outcrop.sources.workspace import cache_folder

_MARK = "# Written by `outcrop git-hook install`. `outcrop git-hook remove` restores what was here before."
_EARLIER = ".before-outcrop"  # the suffix of the hook that was there before


class HookType(StrEnum):
    PRE_COMMIT = "pre-commit"
    PRE_PUSH = "pre-push"
    PRE_RECEIVE = "pre-receive"


TypeOption = Annotated[HookType, typer.Option("--type", help="The hook.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

git_hook = typer.Typer(
    help="Hooks of a git repository.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@git_hook.command()
def install(type_: TypeOption = HookType.PRE_COMMIT, as_json: JsonOption = False) -> None:
    """Install a hook in the repository of the current folder. A hook that is there is called first."""
    file = _hook_file(type_)
    earlier = file.with_name(file.name + _EARLIER)
    if (file.exists() or file.is_symlink()) and not _is_ours(file):
        if earlier.exists():
            raise OperatorError(f"{earlier}: is in the way: remove or rename it first")
        file.rename(earlier)
    file.parent.mkdir(exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    unfinished.write_text(_script(type_))
    unfinished.chmod(0o755)
    unfinished.replace(file)
    _print(type_, file, "installed", earlier if earlier.exists() else None, as_json=as_json)


@git_hook.command()
def remove(type_: TypeOption = HookType.PRE_COMMIT, as_json: JsonOption = False) -> None:
    """Remove a hook that `install` has written, and restore the one that was there before."""
    file = _hook_file(type_)
    earlier = file.with_name(file.name + _EARLIER)
    if not _is_ours(file):
        raise OperatorError(f"{file}: is not a hook of outcrop")
    if earlier.exists():
        earlier.replace(file)
        _print(type_, file, "restored", None, as_json=as_json)
    else:
        file.unlink()
        _print(type_, file, "removed", None, as_json=as_json)


@git_hook.command()
def run(type_: TypeOption = HookType.PRE_COMMIT, as_json: JsonOption = False) -> None:
    """Scan what git is about to commit, push or receive: the hook calls this. Exit code 1: credentials."""
    push = None
    if type_ is not HookType.PRE_COMMIT:
        push = _read_push(sys.stdin.buffer.read(), is_receiving=type_ is HookType.PRE_RECEIVE)
        if not push.tips:  # refs are deleted
            return
    cache = cache_folder()
    options = ScanOptions(
        load_ruleset(cache=cache),
        Confidence.MEDIUM,
        jobs=count_cores(),
        work=cache,
        staged=push is None,
        push=push,
        type="git",
    )
    report = scan(["."], options, lambda _: None)
    for where, why in report.gaps:
        print(f"not scanned: {where}: {why}", file=sys.stderr)
    for failure in report.failures:
        print(f"outcrop: {failure}", file=sys.stderr)
    places = [{name: f.fields[name] for name in _SHOWN} for f in report.findings]
    for place in places:
        commit = f", commit {place['commit'][:12]}" if place["commit"] else ""
        where = f"{place['file_path'] or '(unreachable)'}:{place['line_number']}"
        print(f"outcrop: refused: {where}: {place['rule']}{commit}", file=sys.stderr)
    if as_json:
        print(orjson.dumps(places).decode())
    raise typer.Exit(2 if report.failures else 1 if report.findings else 0)


_SHOWN = ("file_path", "line_number", "rule", "commit")


def _read_push(lines: bytes, *, is_receiving: bool) -> Push:
    """Return what a push adds, from the lines that git writes to a hook.

    For pre-receive a line is `old new ref`, for pre-push `local-ref local-id remote-ref remote-id`.
    """
    old: list[bytes] = []
    new: list[bytes] = []
    for line in filter(bytes.strip, lines.splitlines()):
        words = line.split(b" ")
        ids = words[:2] if is_receiving else [words[-1], *words[1:2]]
        if len(words) < 3 or not all(map(OID.fullmatch, ids)):
            raise BadInputError("standard input is not what git writes to such a hook")
        old += [oid for oid in ids[:1] if oid.strip(b"0")]
        new += [oid for oid in ids[1:] if oid.strip(b"0")]
    quarantine = os.environ.get("GIT_QUARANTINE_PATH") if is_receiving else None
    prefix = b"refs/" if is_receiving else b"refs/remotes/"
    return Push(tuple(new), tuple(old), prefix, Path(quarantine) if quarantine else None)


def _hook_file(type_: HookType) -> Path:
    """Return the path of a hook of the repository that the current folder is in."""
    here = Path.cwd()
    git_folder = next((found for folder in (here, *here.parents) if (found := find_git_folder(folder))), None)
    if git_folder is None:
        raise OperatorError("the current folder is in no git repository")
    common = git_folder
    if (git_folder / "commondir").is_file():
        common = git_folder / (git_folder / "commondir").read_text().strip()
    config = common / "config"
    text = config.read_text(errors="replace") if config.is_file() else ""
    if re.search(r"^\s*hooksPath\s*=", text, re.MULTILINE | re.IGNORECASE) or _has_hooks_path_for_all():
        raise OperatorError("core.hooksPath is set here: call `outcrop git-hook run` from a hook there")
    return common / "hooks" / type_.value


def _has_hooks_path_for_all() -> bool:
    """Whether git's configuration of the user or of the machine says that hooks are elsewhere."""
    return any(
        subprocess.run(
            ["git", "config", scope, "--includes", "--get", "core.hooksPath"],
            cwd="/",  # in no repository: git reads no configuration of a foreign one
            capture_output=True,
            check=False,
        ).stdout.strip()
        for scope in ("--global", "--system")
    )


def _is_ours(file: Path) -> bool:
    """Whether a file is a hook that `install` has written."""
    return file.is_file() and not file.is_symlink() and _MARK in file.read_text(errors="replace")


def _script(type_: HookType) -> str:
    """Return the hook: it calls the earlier hook and then Outcrop, both with the same input."""
    command = f"{shlex.quote(sys.executable)} -m outcrop git-hook run --type {type_.value}"
    earlier = f'"$0{_EARLIER}"'
    if type_ is HookType.PRE_COMMIT:
        calls = f'if [ -x {earlier} ]; then {earlier} "$@" || exit; fi\nexec {command}\n'
    else:
        calls = (
            "lines=$(cat)\n"
            'give() { if [ -n "$lines" ]; then printf \'%s\\n\' "$lines"; fi; }\n'
            f'if [ -x {earlier} ]; then give | {earlier} "$@" || exit; fi\n'
            f"give | {command}\n"
        )
    return f"#!/bin/sh\n{_MARK}\n{calls}"


def _print(type_: HookType, file: Path, done: str, earlier: Path | None, *, as_json: bool) -> None:
    """Print what was done to a hook."""
    if as_json:
        calls = None if earlier is None else str(earlier)
        print(orjson.dumps({"type": type_.value, "file": str(file), "done": done, "calls": calls}).decode())
    else:
        print(f"{file}: {done}" + (f"; calls {earlier} first" if earlier else ""))
