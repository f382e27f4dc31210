"""Open a git repository without using its configuration: git only runs in an empty repository of our own.

Our repository names the object folders of the other one as alternates, and the other's refs are read as data.
Its configuration, hooks, filters and remotes are never read. Otherwise a configured program would run: plain
`git cat-file` starts one to fetch a missing object.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.lazy_regex import regex
from outcrop.limits import ALTERNATES_DEPTH
from outcrop.sources.budget import SourceBudget
from outcrop.sources.git.ref_files import (
    OID,
    Refs,
    list_loose_folders,
    list_names,
    read_head,
    read_refs,
    read_small_file,
    read_worktree_heads,
    resolve_ref,
)

_MAX_FOLDER_DEPTH = 2  # below an object folder, as in objects/info/commit-graphs
_QUOTED_PATH = regex(rb'"((?:[^"\\]|\\[abfnrtv"\\]|\\[0-3][0-7]{2})*+)"', re.DOTALL)
_ESCAPE = regex(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED_CHARACTERS = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))


@dataclass(frozen=True, slots=True)
class Repository:
    """A bare repository of our own through which the objects of another repository are read."""

    folder: Path
    objects: tuple[Path, ...]  # the object folders of the other repository, alternates included
    refs: Refs
    head: bytes | None
    gaps: list[str] = field(default_factory=list)
    budget: SourceBudget = field(default_factory=SourceBudget)  # what reading it may cost

    @property
    def tips(self) -> list[bytes]:
        """The hexadecimal ids of the objects that the refs and HEAD name, each once, sorted."""
        return sorted({*self.refs.values(), *([self.head] if self.head else [])})


def find_git_folder(path: Path) -> Path | None:
    """Return the git folder of a working tree or bare repository; None if the path is neither.

    If `.git` is a file, as in a linked worktree or a submodule, the result is the folder that the file names,
    or None if that is no git folder. A folder `.git` without HEAD counts if it has `objects` and `refs`.
    """
    inner = path / ".git"
    # Without HEAD git itself would see no repository, but its objects can be read.
    if os.path.isdir(inner) and (
        _looks_like_git(inner) or all(os.path.isdir(inner / part) for part in ("objects", "refs"))
    ):
        return inner
    if os.path.isfile(inner):  # a linked worktree or submodule: the file names the folder
        text = read_small_file(inner)
        if text.startswith(b"gitdir:"):
            named = path / os.fsdecode(text[7:].strip())
            return named if _looks_like_git(named) else None
    return path if _looks_like_git(path) and os.path.isdir(path / "refs") else None


def has_missing_git_folder(path: Path) -> bool:
    """Whether `.git` of a working tree is a file whose git folder is absent, as in a tree mounted alone."""
    return (
        os.path.isfile(path / ".git")
        and read_small_file(path / ".git").startswith(b"gitdir:")
        and find_git_folder(path) is None
    )


def _looks_like_git(path: Path) -> bool:
    """Whether a folder has a file `HEAD`, and a folder `objects` or a file `commondir`."""
    return os.path.isfile(path / "HEAD") and (
        os.path.isdir(path / "objects") or os.path.isfile(path / "commondir")
    )


def open_local(
    git_folder: Path, work: Path, budget: SourceBudget | None = None, quarantine: Path | None = None
) -> Repository:
    """Create a repository of our own in the folder `work` that reads a local repository, and open it.

    `git_folder` is what `find_git_folder` returned. `budget` watches what reading costs. `quarantine` is the
    folder with the objects of a push that git has not accepted yet. The refs of the
    result include stashes and the HEAD of each linked worktree. The `gaps` of the result name what cannot be
    read, such as the history that a shallow clone lacks. Raise PermissionError if the object folder cannot be
    listed.
    """
    common = git_folder
    if os.path.isfile(git_folder / "commondir"):
        text = read_small_file(git_folder / "commondir")
        common = git_folder / os.fsdecode(text.partition(b"\0")[0].strip())
    gaps: list[str] = []
    objects = _find_object_folders(_resolve_path(common / "objects"), gaps)
    if quarantine is not None:
        objects = (_resolve_path(quarantine), *objects)
    refs = read_refs(common, gaps)
    if git_folder != common:
        refs |= {name: oid for name, oid in read_refs(git_folder, gaps).items() if name not in refs}
    head = read_head(git_folder, refs, gaps)
    refs |= read_worktree_heads(common, refs, gaps)
    shallow = [line for line in read_small_file(common / "shallow", 1 << 24).split() if OID.fullmatch(line)]
    if shallow:
        gaps.append("the clone is shallow: older history is missing")
    _note_pack_gaps(objects, gaps)
    if os.path.isdir(common / "reftable"):
        gaps.append("refs are stored as reftable, which is not read: findings have no commit")
    objects = tuple(
        _without_special_files(folder, work / f"objects-{number}", gaps)
        for number, folder in enumerate(objects)
    )
    repository = Repository(work / "repository.git", objects, refs, head, gaps, budget or SourceBudget())
    repository.budget.explain_packs(pack_bytes(repository))
    _create_own_repository(repository, shallow)
    return repository


def open_mirror(folder: Path, budget: SourceBudget | None = None) -> Repository:
    """Return the bare repository in `folder`, which we have cloned or downloaded: git runs in that folder.

    `budget` watches what reading costs. Nothing is written. The `gaps` of the result name the refs that
    cannot be read.
    """
    gaps: list[str] = []
    refs = read_refs(folder, gaps)
    head = resolve_ref(read_small_file(folder / "HEAD").strip(), refs)
    objects = ((folder / "objects").resolve(),)
    repository = Repository(folder, objects, refs, head, gaps, budget or SourceBudget())
    repository.budget.explain_packs(pack_bytes(repository))
    return repository


def pack_bytes(repository: Repository) -> int:
    """Return the total size of the repository's packs in bytes."""
    size = 0
    for folder in repository.objects:
        for name in list_names(folder / "pack"):
            if name.endswith(".pack"):
                with contextlib.suppress(OSError):
                    size += os.stat(folder / "pack" / name).st_size
    return size


def read_origin(path: Path) -> str | None:
    """Return the address of the remote `origin` as it is configured, with a login; None if there is none."""
    url = re.search(r"^\s*url\s*=\s*(\S+)\s*$", _read_origin_section(path), re.MULTILINE)
    return url[1] if url else None


def read_origin_url(path: Path) -> str | None:
    """Return the https address of the remote `origin` of the working tree or bare repository at `path`.

    User name, password and `.git` at the end are dropped. Return None if there is no such repository or
    remote, or if its address is not https. The configuration is read as text.
    """
    section = _read_origin_section(path)
    url = re.search(r"^\s*url\s*=\s*https://(?:[^@/\s]*@)?(\S+?)(?:\.git)?/?\s*$", section, re.MULTILINE)
    return f"https://{url[1]}" if url else None


def _read_origin_section(path: Path) -> str:
    """Return the lines about the remote `origin` in the configuration of the repository at `path`."""
    folder = find_git_folder(path)
    config = read_small_file(folder / "config").decode("utf-8", "replace") if folder else ""
    section = re.search(r'^\[remote "origin"\]\s*$(.*?)(?=^\[|\Z)', config, re.MULTILINE | re.DOTALL)
    return section[1] if section else ""


def digest_objects(repository: Repository) -> str:
    """Return a SHA-256 digest of the object store, in hexadecimal.

    The digest changes when a pack or a loose object is added or removed.
    """
    digest = hashlib.sha256()
    for folder in repository.objects:
        for name in sorted(name for name in list_names(folder / "pack") if name.endswith(".idx")):
            path = folder / "pack" / name
            raw = os.fsencode(name)
            with contextlib.suppress(OSError):  # without its pack the objects of an index cannot be read
                raw += b" %d " % os.stat(path.with_suffix(".pack")).st_size
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(-min(40, os.fstat(file.fileno()).st_size), os.SEEK_END)
                raw += file.read()  # the checksums of the pack and of its index
            digest.update(raw)
        for loose in list_loose_folders(folder):
            if names := list_names(folder / loose):
                digest.update(f"{loose} {' '.join(sorted(names))}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def digest_refs(repository: Repository) -> str:
    """Return a SHA-256 digest in hexadecimal of HEAD and of the names and targets of all refs."""
    digest = hashlib.sha256(repository.head or b"-")
    for name, oid in sorted(repository.refs.items()):
        digest.update(name + b" " + oid + b"\n")
    return digest.hexdigest()


def _find_object_folders(first: Path, gaps: list[str]) -> tuple[Path, ...]:
    """Return the object folder `first`, its alternates, and the alternates of these, each once.

    Alternates are followed ALTERNATES_DEPTH deep. A folder that is missing, also `first`, is left out,
    and a gap is appended to `gaps`. Raise PermissionError if `first` cannot be listed.
    """
    found: list[Path] = []
    if os.path.isdir(first):
        os.listdir(first)  # raises PermissionError: then nothing can be read at all
    pending = [(first, 0)]
    while pending:
        folder, depth = pending.pop(0)
        if folder in found:
            continue
        if not os.path.isdir(folder):
            gaps.append("an object folder that the repository borrows from is missing")
            continue
        found.append(folder)
        if depth < ALTERNATES_DEPTH:
            alternates = parse_alternates(read_small_file(folder / "info" / "alternates", 1 << 16))
            pending += [(_resolve_path(folder / os.fsdecode(name)), depth + 1) for name in alternates]
    return tuple(found)


def parse_alternates(raw: bytes) -> list[bytes]:
    """Return the folders in an `objects/info/alternates` file with the content `raw`, as git reads it.

    Each line is a folder or a comment (`#`); empty lines are skipped. Escapes in a quoted folder are decoded.
    The character behind its closing quote, usually the line break, is skipped, whatever it is: what follows
    is the next folder. A quoted folder with a wrong escape or without an end is read as if it had no quotes.
    """
    folders = []
    at = 0
    while at < len(raw):
        quoted = _QUOTED_PATH.match(raw, at)
        if quoted:
            end = quoted.end()
            folders.append(_ESCAPE.sub(_unescape, quoted[1]))
        else:
            end = raw.find(b"\n", at) % (len(raw) + 1)  # -1 (no line break) becomes len(raw)
            if not raw.startswith(b"#", at):
                folders.append(raw[at:end])
        at = end + 1
    return [folder for folder in folders if folder]


def _unescape(escape: re.Match[bytes]) -> bytes:
    r"""Return the byte that an escape such as `\n` or `\303` means; group 1 is the part behind `\`."""
    code = escape[1]
    return bytes([int(code, 8) if len(code) > 1 else _ESCAPED_CHARACTERS[code[0]]])


def format_alternate(folder: bytes) -> bytes:
    """Return the quoted line of an alternates file for a folder whose name may contain any character."""
    escaped = b"".join(b"\\%03o" % c if c < 32 or c in b'"\\' or c > 126 else bytes([c]) for c in folder)
    return b'"' + escaped + b'"\n'


def _note_pack_gaps(object_folders: tuple[Path, ...], gaps: list[str]) -> None:
    """Append one gap if there are promisor packs (of a partial clone), and one if a pack has no index."""
    packs = [
        folder / "pack" / name
        for folder in object_folders
        for name in list_names(folder / "pack")
        if name.endswith(".pack")
    ]
    if any(os.path.exists(pack.with_suffix(".promisor")) for pack in packs):
        gaps.append("the clone is partial: objects that were never fetched are missing")
    if not all(os.path.isfile(pack.with_suffix(".idx")) for pack in packs):
        gaps.append("a pack has no index: its objects cannot be read")


def _without_special_files(folder: Path, replacement: Path, gaps: list[str]) -> Path:
    """Return `folder` if git would read only regular files in it; otherwise create and return `replacement`.

    `replacement` has links to all files of the object folder that are regular, and a gap with the number of
    the others is appended to `gaps`. git would wait for a named pipe, and read a device without end.
    """
    entries = list(_list_entries(os.fspath(folder)))
    special = {
        entry.path
        for entry in entries
        if not entry.is_file(follow_symlinks=False) and _is_special(entry.path)
    }
    if not special:
        return folder
    gaps.append(f"{len(special)} special files are among the objects: they are not read")
    replacement.mkdir(parents=True)
    for entry in entries:
        if entry.path not in special:
            link = replacement / os.path.relpath(entry.path, folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(entry.path)
    return replacement


def _is_special(path: str) -> bool:
    """Whether a path is, or links to, something that exists and is not a regular file."""
    return os.path.exists(path) and not os.path.isfile(path)


def _list_entries(folder: str, depth: int = 0) -> Iterator[os.DirEntry[str]]:
    """Yield the files of an object folder and its subfolders, and the folders with the name of an object.

    Folders with such a name are yielded instead of listed: git takes them for an object, a pack or a pack
    index. `depth` is the number of folders between the object folder and `folder`. Folders deeper than
    _MAX_FOLDER_DEPTH are skipped, and so are those that cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir() or _is_object_name(folder, entry.name):
                    yield entry
                elif depth < _MAX_FOLDER_DEPTH:
                    yield from _list_entries(entry.path, depth + 1)
    except OSError:  # git cannot read such a folder either, and reports it
        return


def _is_object_name(folder: str, name: str) -> bool:
    """Whether git takes a file `name` in the folder `folder` for a loose object, a pack or a pack index."""
    is_loose = OID.fullmatch(os.fsencode(os.path.basename(folder) + name))
    return bool(is_loose) or name.endswith((".pack", ".idx"))


def _resolve_path(path: Path) -> Path:
    """Return the path with all links resolved; return it unchanged if that fails."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return path


def _create_own_repository(repository: Repository, shallow: list[bytes]) -> None:
    """Write an empty repository to `repository.folder` that borrows the objects of `repository.objects`.

    No git command is needed. `shallow` holds the commits at which the history of a shallow clone ends; they
    are written too. `_uses_sha256` chooses the format of ids, and may append a gap to `repository.gaps`.
    """
    folder = repository.folder
    sha256 = _uses_sha256(repository)
    (folder / "objects" / "info").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    extensions = "[extensions]\n\tobjectformat = sha256\n" if sha256 else ""
    (folder / "config").write_text(
        f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tbare = true\n{extensions}"
    )
    (folder / "objects" / "info" / "alternates").write_bytes(
        b"".join(format_alternate(os.fsencode(path)) for path in repository.objects)
    )
    if shallow:
        (folder / "shallow").write_bytes(b"".join(oid + b"\n" for oid in shallow))


def _uses_sha256(repository: Repository) -> bool:
    """Whether the object ids of the repository have 64 digits (SHA-256) instead of 40 (SHA-1).

    The file names of loose objects and packs decide. If names of both lengths exist, a gap is appended to
    `repository.gaps`. If names of both lengths or of neither exist, the more frequent length among
    `repository.tips` decides; the result is False if both are equally frequent.
    """
    lengths: set[int] = set()
    for folder in repository.objects:
        lengths |= {
            len(name) - 10
            for name in list_names(folder / "pack")
            if name.startswith("pack-") and name.endswith(".pack")
        }
        lengths |= {
            len(name) + 2 for loose in list_loose_folders(folder) for name in list_names(folder / loose)
        }
    if lengths >= {40, 64}:
        repository.gaps.append(
            "some objects have SHA-1 ids and others SHA-256 ids: only one kind can be read"
        )
    elif lengths & {40, 64}:
        return 64 in lengths
    tips = [len(oid) for oid in repository.tips]
    return tips.count(64) > tips.count(40)
