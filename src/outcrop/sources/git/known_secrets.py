"""Check whether a secret that an earlier scan found is still in a repository, even if no rule reports it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.sources.git.attribution import Places
from outcrop.sources.git.cat_file import LargeObject
from outcrop.sources.git.objects import read_contents
from outcrop.sources.git.repository import Repository
from outcrop.sources.git.revisions import list_blobs_at_path

_READ_BYTES = 1 << 20  # of a large object at a time


@dataclass(frozen=True, slots=True)
class KnownSecret:
    """A secret that an earlier scan found: its path, its blobs, and its value if that is stored."""

    path: bytes
    blobs: frozenset[bytes]
    value: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class EarlierScan:
    """The results of earlier scans: commits whose blobs have all been scanned, and the secrets found."""

    tips: tuple[bytes, ...] = ()
    secrets: tuple[KnownSecret, ...] = ()


def is_reachable(
    repository: Repository, ruleset: RuleSet, secret: KnownSecret, places: Places, tips: Sequence[bytes]
) -> bool:
    """Whether a commit reachable from `tips` has the secret at its path; True if git cannot answer that.

    `places` has the paths of the secret's blobs. The answer is True if one of them is the secret's path or
    that of an archive around it. Otherwise the value is searched in all versions of these files, because a
    changed rule must not make a secret look deleted; without a stored value the answer is then False.
    """
    files = list_containing_files(secret.path)
    if any(places.get(blob, {}).keys() & files for blob in secret.blobs):
        return True
    if secret.value is None:
        return False
    for path in files:
        versions = list_blobs_at_path(repository, tips, path)
        if versions is None:
            return True
        contents = read_contents(repository, [versions]) if versions else ()
        if any(contains_value(ruleset, content, secret.value) for _, content in contents):
            return True
    return False


def list_containing_files(path: bytes) -> list[bytes]:
    """Return the path, and the paths of the archives whose member it may be: the parts before each `!`.

    `a.zip!b.zip!c` gives these three: `a.zip!b.zip!c`, `a.zip!b.zip`, `a.zip`.
    """
    parts = path.split(b"!")
    return [b"!".join(parts[:count]) for count in range(len(parts), 0, -1)]


def contains_value(ruleset: RuleSet, content: bytes | LargeObject | None, value: str) -> bool:
    """Whether a content has the value: literally, in an archive, or in an encoding that the scanner decodes.

    A LargeObject is read until the value is found, and searched for the literal value only. The result is
    True for None, which is a content that cannot be read, and for a LargeObject that is cut off.
    """
    raw = value.encode("utf-8", "surrogateescape")
    if content is None:
        return True
    if isinstance(content, LargeObject):
        return _stream_contains(content, raw)
    if any(raw in text for text in (content, *(text for _, text in unpack_texts(content, UnpackBudget())))):
        return True
    return any(reveal(hit.secret) == value for _, hit in scan_content(ruleset, content, Confidence.LOW).hits)


def _stream_contains(content: LargeObject, raw: bytes) -> bool:
    """Whether a large object contains the bytes `raw`; True if git cannot read the object to its end."""
    overlap = b""
    while piece := content.read(_READ_BYTES):
        if raw in overlap + piece:
            return True
        overlap = (overlap + piece)[-len(raw) :]
    return content.is_truncated
