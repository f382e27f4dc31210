"""A git repository, opened so that nothing of it can run: git only ever works in an empty repository of our own.

Our own repository names the other's object folder as an alternate, and its refs are copied as data. The other's
configuration, hooks, filters and remotes are never read: a repository whose configuration names a program to run
for a missing object had that program run by plain `git cat-file` otherwise.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.sources.git import alternates, command
from outcrop.sources.located import printable_path

OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SYMBOLIC = 5  # how many times a symbolic ref is followed
_ALTERNATES = 5
_FOLDERS = 2  # objects/info/commit-graphs


@dataclass(frozen=True, slots=True)
class Repository:
    """An own, bare repository through which another one's objects are read."""

    folder: Path
    objects: tuple[Path, ...]  # the object folders behind it
    refs: dict[bytes, bytes]  # name → object id, in hexadecimal
    head: bytes | None
    gaps: list[str] = field(default_factory=list)

    @property
    def tips(self) -> list[bytes]:
        """Give what the refs point at, each once."""
        return sorted({*self.refs.values(), *([self.head] if self.head else [])})


def find_git_folder(path: Path) -> Path | None:
    """Give the git folder of a working tree or a bare repository; None where there is none."""
    inner = path / ".git"
    if os.path.isdir(inner) and (
        _looks_like_git(inner) or all(os.path.isdir(inner / part) for part in ("objects", "refs"))
    ):
        return inner  # also where HEAD is lost, though git itself would see no repository then
    if os.path.isfile(inner):  # a worktree or a submodule: the file names the folder
        text = _small(inner)
        if text.startswith(b"gitdir:"):
            named = path / os.fsdecode(text[7:].strip())
            return named if _looks_like_git(named) else None
    return path if _looks_like_git(path) and os.path.isdir(path / "refs") else None


def is_cut_off(path: Path) -> bool:
    """Tell whether a working tree names a git folder that is not there: a worktree or submodule that was mounted by itself."""
    return (
        os.path.isfile(path / ".git")
        and _small(path / ".git").startswith(b"gitdir:")
        and find_git_folder(path) is None
    )


def _looks_like_git(path: Path) -> bool:
    return os.path.isfile(path / "HEAD") and (
        os.path.isdir(path / "objects") or os.path.isfile(path / "commondir")
    )


def open_local(git_folder: Path, work: Path) -> Repository:
    """Open a repository on this machine."""
    common = git_folder
    if os.path.isfile(git_folder / "commondir"):
        common = git_folder / os.fsdecode(_small(git_folder / "commondir").partition(b"\0")[0].strip())
    gaps: list[str] = []
    objects = _object_folders(_real(common / "objects"), gaps)
    refs = _refs(common, gaps)
    if git_folder != common:
        refs |= {name: oid for name, oid in _refs(git_folder, gaps).items() if name not in refs}
    head = _head(git_folder, refs, gaps)
    refs |= _heads_of_worktrees(common, refs, gaps)
    shallow = [line for line in _small(common / "shallow", 1 << 24).split() if OID.fullmatch(line)]
    if shallow:
        gaps.append("the clone is shallow: older history is not there")
    packs = [
        folder / "pack" / name
        for folder in objects
        for name in _names(folder / "pack")
        if name.endswith(".pack")
    ]
    if any(os.path.exists(pack.with_suffix(".promisor")) for pack in packs):
        gaps.append("the clone is partial: objects that were never fetched are not there")
    if not all(os.path.isfile(pack.with_suffix(".idx")) for pack in packs):
        gaps.append("a pack has no index: its objects cannot be read")
    if os.path.isdir(common / "reftable"):
        gaps.append("refs are stored as reftable, which is not read: findings have no commit")
    objects = tuple(
        _regular(folder, work / f"objects-{number}", gaps) for number, folder in enumerate(objects)
    )
    return _own(Repository(work / "repository.git", objects, refs, head, gaps), shallow)


def open_mirror(folder: Path) -> Repository:
    """Open a mirror that we have cloned ourselves."""
    gaps: list[str] = []
    refs = _refs(folder, gaps)
    return Repository(
        folder, ((folder / "objects").resolve(),), refs, _resolve(_small(folder / "HEAD").strip(), refs), gaps
    )


def origin_of(path: Path) -> str | None:
    """Give the https address that a repository on this machine says it was cloned from, without name and password: read as text only."""
    folder = find_git_folder(path)
    config = _small(folder / "config").decode("utf-8", "replace") if folder else ""
    section = re.search(r'^\[remote "origin"\]\s*$(.*?)(?=^\[|\Z)', config, re.MULTILINE | re.DOTALL)
    found = (
        re.search(r"^\s*url\s*=\s*https://(?:[^@/\s]*@)?(\S+?)(?:\.git)?/?\s*$", section[1], re.MULTILINE)
        if section
        else None
    )
    return f"https://{found[1]}" if found else None


def state(repository: Repository) -> str:
    """Give a digest of which objects there are: equal means that nothing has come or gone."""
    digest = hashlib.sha256()
    for folder in repository.objects:
        for name in sorted(name for name in _names(folder / "pack") if name.endswith(".idx")):
            path = folder / "pack" / name
            raw = os.fsencode(name)
            with contextlib.suppress(OSError):  # an index whose pack is away says nothing of what can be read
                raw += b" %d " % os.stat(path.with_suffix(".pack")).st_size
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(-min(40, os.fstat(file.fileno()).st_size), os.SEEK_END)
                raw += file.read()  # the checksums of the pack and of its index
            digest.update(raw)
        for number in range(256):
            if names := _names(folder / f"{number:02x}"):
                digest.update(f"{number:02x} {' '.join(sorted(names))}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def refs_state(repository: Repository) -> str:
    digest = hashlib.sha256(repository.head or b"-")
    for name, oid in sorted(repository.refs.items()):
        digest.update(name + b" " + oid + b"\n")
    return digest.hexdigest()


def resolve(repository: Repository, revision: str) -> bytes:
    """Give the commit that a person's revision names: a ref's name, short or long, or the beginning of an id."""
    raw = os.fsencode(revision)
    names = [raw, b"refs/" + raw, b"refs/tags/" + raw, b"refs/heads/" + raw, b"refs/remotes/" + raw]
    found = next((repository.refs[name] for name in names if name in repository.refs), None)
    base, _, rest = revision.partition("~") if "~" in revision else revision.partition("^")
    if found is None and revision in {"HEAD", "@"}:
        found = repository.head
    elif found is None and (rest or base != revision):
        found = resolve(repository, base) + os.fsencode(revision[len(base) :])
    elif found is None and re.fullmatch("[0-9a-fA-F]{4,64}", revision):
        found = raw
    arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options"]
    code, out = (
        command.run(repository.folder, *arguments, os.fsdecode(found) + "^{commit}") if found else (1, b"")
    )
    if code or not OID.fullmatch(out.strip()):
        raise OperatorError(f"--since {printable_path(os.fsencode(revision))}: there is no such revision")
    return out.strip()


def _object_folders(first: Path, gaps: list[str]) -> tuple[Path, ...]:
    """Follow alternates ourselves, a bounded number of steps, so that git is given a flat list."""
    found: list[Path] = []
    if os.path.isdir(first):
        os.listdir(first)  # where that is not allowed nothing can be read at all
    ahead = [(first, 0)]
    while ahead:
        folder, depth = ahead.pop(0)
        if folder in found:
            continue
        if not os.path.isdir(folder):
            gaps.append("an object folder that the repository borrows from is missing")
            continue
        found.append(folder)
        named = (
            alternates.folders(_small(folder / "info" / "alternates", 1 << 16)) if depth < _ALTERNATES else []
        )
        ahead += [(_real(folder / os.fsdecode(name)), depth + 1) for name in named]
    return tuple(found)


def _regular(folder: Path, beside: Path, gaps: list[str]) -> Path:
    """Give an object folder in which git finds nothing but files: it would wait for a pipe or read a device without end."""
    entries = list(_entries(os.fspath(folder)))
    odd = {
        entry.path
        for entry in entries
        if not entry.is_file(follow_symlinks=False) and _is_special(entry.path)
    }
    if not odd:
        return folder
    gaps.append(f"{len(odd)} special files stand among the objects: they are not read")
    beside.mkdir(parents=True)
    for entry in entries:
        if entry.path not in odd:
            kept = beside / os.path.relpath(entry.path, folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.symlink_to(entry.path)
    return beside


def _is_special(path: str) -> bool:
    """Tell whether a path leads to something that is no file; what leads nowhere does no harm."""
    return os.path.exists(path) and not os.path.isfile(path)


def _entries(folder: str, depth: int = 0) -> Iterator[os.DirEntry[str]]:
    """Give what stands in an object folder and in those that git looks into, folders aside that it does not take for an object."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir() or _is_named_as_object(folder, entry.name):
                    yield entry
                elif depth < _FOLDERS:
                    yield from _entries(entry.path, depth + 1)
    except OSError:  # what cannot be listed git cannot read either, and says so
        return


def _is_named_as_object(folder: str, name: str) -> bool:
    return bool(OID.fullmatch(os.fsencode(os.path.basename(folder) + name))) or name.endswith(
        (".pack", ".idx")
    )


def _real(path: Path) -> Path:
    """Resolve links; a path that cannot be resolved stays as it is, and is missing."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return path


def _refs(folder: Path, gaps: list[str]) -> dict[bytes, bytes]:
    """Read refs as data: packed ones, then loose ones, which win."""
    refs = _packed(folder / "packed-refs", gaps)
    symbolic: dict[bytes, bytes] = {}
    root = os.fsencode(folder)

    def unread(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            gaps.append(
                f"refs in {printable_path(os.path.relpath(os.fsencode(error.filename), root))} cannot be read"
            )

    for place, folders, names in os.walk(os.path.join(root, b"refs"), onerror=unread, followlinks=False):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for file in sorted([*names, *links]):
            full = os.path.join(place, file)
            content = _small(Path(os.fsdecode(full))).strip()
            name = os.path.relpath(full, root)
            if OID.fullmatch(content):
                refs[name] = content
            elif content.startswith(b"ref:"):
                symbolic[name] = content
            elif not file.endswith(b".lock"):
                gaps.append(f"ref {printable_path(name)} cannot be read")
    refs |= {
        name: found
        for name, content in symbolic.items()
        if (found := _resolve(_followed(content, symbolic), refs))
    }
    stash = _reflog(folder / "logs" / "refs" / "stash")
    return refs | {b"refs/stash@{%d}" % number: entry for number, entry in enumerate(stash)}


def _packed(file: Path, gaps: list[str]) -> dict[bytes, bytes]:
    """Read packed refs; a line can also be a note, or what the tag above it points at."""
    refs: dict[bytes, bytes] = {}
    text = _small(file, 1 << 28)
    bad = not text and os.path.exists(file) and os.path.getsize(file) > 0
    for line in text.split(b"\n"):
        oid, _, name = line.partition(b" ")
        if OID.fullmatch(oid) and name.startswith(b"refs/"):
            refs[name] = oid
        else:
            bad = bad or not (line.startswith((b"#", b"^")) or not line)
    if bad:
        gaps.append("packed-refs is damaged or cannot be read: some refs are not known")
    return refs


def _head(folder: Path, refs: dict[bytes, bytes], gaps: list[str]) -> bytes | None:
    content = _small(folder / "HEAD").strip()
    if not OID.fullmatch(content) and not content.startswith(b"ref:"):
        gaps.append("HEAD cannot be read: what stands at the tip is not known")
    return _resolve(content, refs)


def _heads_of_worktrees(common: Path, refs: dict[bytes, bytes], gaps: list[str]) -> dict[bytes, bytes]:
    """Give what other working trees stand at, which need not be a branch."""
    folders = [common / "worktrees" / name for name in sorted(_names(common / "worktrees"))]
    heads = {os.fsencode(f"worktrees/{folder.name}/HEAD"): _head(folder, refs, gaps) for folder in folders}
    return {name: oid for name, oid in heads.items() if oid}


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (OSError, ValueError):
        return []


def _reflog(path: Path) -> list[bytes]:
    """Give the entries of a reflog: older stashes are kept nowhere else."""
    return [
        parts[1]
        for line in _small(path, 1 << 22).split(b"\n")
        if len(parts := line.split(b" ", 2)) == 3 and OID.fullmatch(parts[1])
    ]


def _followed(content: bytes, symbolic: dict[bytes, bytes]) -> bytes:
    """Give what the last of some symbolic refs says that lead to one another."""
    for _ in range(_SYMBOLIC):
        content = symbolic.get(content[4:].strip(), content)
    return content


def _resolve(content: bytes, refs: dict[bytes, bytes]) -> bytes | None:
    if OID.fullmatch(content):
        return content
    return refs.get(content[4:].strip()) if content.startswith(b"ref:") else None


def _small(path: Path, limit: int = 1 << 16) -> bytes:
    """Read a small file of a repository; what is missing, special or too large is empty."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def _own(made: Repository, shallow: list[bytes]) -> Repository:
    """Write an empty repository that borrows the objects; no git command is needed for it."""
    folder = made.folder
    sha256 = _is_sha256(made)
    (folder / "objects" / "info").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    extensions = "[extensions]\n\tobjectformat = sha256\n" if sha256 else ""
    (folder / "config").write_text(
        f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tbare = true\n{extensions}"
    )
    (folder / "objects" / "info" / "alternates").write_bytes(
        b"".join(alternates.line(os.fsencode(path)) for path in made.objects)
    )
    if shallow:
        (folder / "shallow").write_bytes(b"".join(oid + b"\n" for oid in shallow))
    return made


def _is_sha256(repository: Repository) -> bool:
    """Tell by the names of objects and packs how long ids are, and by most refs where these do not agree."""
    lengths: set[int] = set()
    for folder in repository.objects:
        lengths |= {
            len(name) - 10
            for name in _names(folder / "pack")
            if name.startswith("pack-") and name.endswith(".pack")
        }
        lengths |= {len(name) + 2 for number in range(256) for name in _names(folder / f"{number:02x}")}
    if lengths >= {40, 64}:
        repository.gaps.append(
            "objects with ids of two lengths stand side by side: only one kind can be read"
        )
    elif lengths & {40, 64}:
        return 64 in lengths
    tips = [len(oid) for oid in repository.tips]
    return tips.count(64) > tips.count(40)
