"""Read the refs of a git folder as plain files: packed and loose refs, HEAD, worktrees and the stash."""

import os
from pathlib import Path

from outcrop.lazy_regex import regex
from outcrop.limits import SYMBOLIC_REFS
from outcrop.sources.located import printable_path

_LOOSE_FOLDERS = frozenset(f"{number:02x}" for number in range(256))

OID = regex(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")

Refs = dict[bytes, bytes]  # name of a ref -> object id in hexadecimal


def read_refs(folder: Path, gaps: list[str]) -> Refs:
    """Return all refs of a git folder (name -> id); the entries of the stash are `refs/stash@{0}` and so on.

    The stash is numbered from its oldest entry on. A loose ref replaces a packed ref of the same name.
    Symbolic refs are resolved; one that leads to no ref is left out. A text for each file or folder that
    cannot be read is appended to `gaps`.
    """
    refs = _read_packed_refs(folder / "packed-refs", gaps)
    symbolic: dict[bytes, bytes] = {}  # name of a symbolic ref -> its content
    root = os.fsencode(folder)

    def note_unreadable(error: OSError) -> None:
        """Append a gap for a folder that cannot be listed; do nothing if the folder does not exist."""
        if not isinstance(error, FileNotFoundError):
            path = os.path.relpath(os.fsencode(error.filename), root)
            gaps.append(f"refs in {printable_path(path)} cannot be read")

    walk = os.walk(os.path.join(root, b"refs"), onerror=note_unreadable, followlinks=False)
    for parent, folders, files in walk:
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for file in sorted([*files, *links]):
            path = os.path.join(parent, file)
            content = read_small_file(Path(os.fsdecode(path))).strip()
            name = os.path.relpath(path, root)
            if OID.fullmatch(content):
                refs[name] = content
            elif content.startswith(b"ref:"):
                symbolic[name] = content
            elif not file.endswith(b".lock"):
                gaps.append(f"ref {printable_path(name)} cannot be read")
    refs |= {
        name: oid
        for name, content in symbolic.items()
        if (oid := resolve_ref(_follow_symbolic(content, symbolic), refs))
    }
    stash = _read_reflog(folder / "logs" / "refs" / "stash")
    return refs | {b"refs/stash@{%d}" % number: oid for number, oid in enumerate(stash)}


def _read_packed_refs(file: Path, gaps: list[str]) -> Refs:
    """Return the refs of a packed-refs file (name -> id); {} if there is none.

    Lines with `#` (comments) and `^` (peeled tags) are skipped. If another line or the whole file cannot be
    read, one gap is appended to `gaps`.
    """
    refs: Refs = {}
    text = read_small_file(file, 1 << 28)
    is_damaged = not text and os.path.exists(file) and os.path.getsize(file) > 0
    for line in text.split(b"\n"):
        oid, _, name = line.partition(b" ")
        if OID.fullmatch(oid) and name.startswith(b"refs/"):
            refs[name] = oid
        else:
            is_damaged = is_damaged or not (line.startswith((b"#", b"^")) or not line)
    if is_damaged:
        gaps.append("packed-refs is damaged or cannot be read: some refs are not known")
    return refs


def read_head(folder: Path, refs: Refs, gaps: list[str]) -> bytes | None:
    """Return the object id that HEAD of a git folder names, directly or through a ref.

    Return None if HEAD names a ref that is not in `refs`. If the file is missing or malformed, append a gap
    to `gaps` and return None.
    """
    content = read_small_file(folder / "HEAD").strip()
    if not OID.fullmatch(content) and not content.startswith(b"ref:"):
        gaps.append("HEAD cannot be read: which files are at the tip is not known")
    return resolve_ref(content, refs)


def read_worktree_heads(common: Path, refs: Refs, gaps: list[str]) -> Refs:
    """Return the HEAD of each linked worktree, which need not be a branch, as `worktrees/<name>/HEAD` -> id.

    `common` is the git folder that the worktrees share, and `refs` are its refs. A HEAD that names none of
    `refs` is left out. A HEAD that is missing or malformed is left out too, and a text is appended to `gaps`.
    """
    folders = [common / "worktrees" / name for name in sorted(list_names(common / "worktrees"))]
    heads = {
        os.fsencode(f"worktrees/{folder.name}/HEAD"): read_head(folder, refs, gaps) for folder in folders
    }
    return {name: oid for name, oid in heads.items() if oid}


def _read_reflog(path: Path) -> list[bytes]:
    """Return the new id of each line of a reflog, the oldest first; [] if the file cannot be read.

    Malformed lines are skipped. Only the reflog has the stashes before the newest one.
    """
    return [
        parts[1]
        for line in read_small_file(path, 1 << 22).split(b"\n")
        if len(parts := line.split(b" ", 2)) == 3 and OID.fullmatch(parts[1])
    ]


def _follow_symbolic(content: bytes, symbolic: dict[bytes, bytes]) -> bytes:
    """Follow symbolic refs from the content `ref: <name>`; return the content of the last symbolic ref.

    If `name` is no symbolic ref, that is the passed content. `symbolic` maps the names of symbolic refs to
    their contents. At most SYMBOLIC_REFS are followed.
    """
    for _ in range(SYMBOLIC_REFS):
        content = symbolic.get(content[4:].strip(), content)
    return content


def resolve_ref(content: bytes, refs: Refs) -> bytes | None:
    """Return the id that the content of a ref file names: the id itself, or that of the ref after `ref:`.

    Return None if the content is neither, or if `refs` does not have that ref.
    """
    if OID.fullmatch(content):
        return content
    return refs.get(content[4:].strip()) if content.startswith(b"ref:") else None


def read_small_file(path: Path, limit: int = 1 << 16) -> bytes:
    """Return the first `limit` bytes of a regular file; b"" if it is missing, special or cannot be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def list_names(folder: Path) -> list[str]:
    """Return the names of the files and folders in a folder, in any order; [] if it cannot be listed."""
    try:
        return os.listdir(folder)
    except (OSError, ValueError):
        return []


def list_loose_folders(objects: Path) -> list[str]:
    """Return the names of the folders of loose objects that may exist in an object folder, in order.

    Most of the 256 are missing in a repository with few loose objects. A folder that cannot be listed may
    have all of them.
    """
    try:
        return sorted(_LOOSE_FOLDERS.intersection(os.listdir(objects)))
    except OSError:
        return sorted(_LOOSE_FOLDERS)
