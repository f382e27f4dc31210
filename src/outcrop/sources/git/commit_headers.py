"""What stands before the message of a commit or a tag: who made it and when, and what it comes from."""

from outcrop.sources.git.objects import HEAD, MESSAGE, Large, whole
from outcrop.sources.git.repository import OID, Repository
from outcrop.sources.located import CommitInfo


def parents_of(content: bytes | Large | None) -> list[bytes]:
    """Give the commits that one names as those before it."""
    return [line[7:] for line in _header(content) if line.startswith(b"parent ") and OID.fullmatch(line[7:])]


def named_by(tag: bytes | Large | None) -> bytes | None:
    """Give what a tag names."""
    return next(
        (line[7:] for line in _header(tag) if line.startswith(b"object ") and OID.fullmatch(line[7:])), None
    )


def _header(content: bytes | Large | None) -> list[bytes]:
    """Give the lines before the message of a commit or a tag, which may be of any length."""
    raw = content.read(HEAD) if isinstance(content, Large) else content or b""
    return raw.partition(MESSAGE)[0].split(b"\n")


def describe(repository: Repository, oids: list[bytes]) -> dict[bytes, CommitInfo]:
    """Read who made these commits, and when."""
    return {oid: _described(oid, _header(content)) for oid, content in whole(repository, oids)}


def _described(oid: bytes, header: list[bytes]) -> CommitInfo:
    line = next((line[7:] for line in header if line.startswith(b"author ")), b"")
    who, _, when = line.rpartition(b"> ")
    encoding = next((line[9:] for line in header if line.startswith(b"encoding ")), b"utf-8")
    return CommitInfo(
        oid.decode(), _decoded(who + b">" if who else line, encoding).strip() or None, _seconds(when)
    )


def _decoded(name: bytes, encoding: bytes) -> str:
    """Read a name in the encoding that its commit says it has; where that is none, or it has not, as UTF-8."""
    try:
        return name.decode(encoding.decode("ascii"))
    except (LookupError, ValueError):
        return name.decode("utf-8", "replace")


def _seconds(when: bytes) -> int | None:
    """Read a date; one before 1970 or after the year 9999 is none."""
    digits = when.split(b" ")[0]
    return int(digits) if digits.isdigit() and len(digits) < 20 and int(digits) < 253_402_300_800 else None
