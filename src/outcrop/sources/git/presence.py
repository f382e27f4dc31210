"""Whether a value that was found once is still there, whatever rules say of it now."""

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archives import UnpackBudget, unpack_texts
from outcrop.sources.git.objects import Large

_PIECE = 1 << 20


def files_of(path: bytes) -> list[bytes]:
    """Give the files that a path can stand for: itself, and those of which it may be a member, named after a `!`."""
    parts = path.split(b"!")
    return [b"!".join(parts[:count]) for count in range(len(parts), 0, -1)]


def holds(ruleset: RuleSet, content: bytes | Large | None, value: str) -> bool:
    """Tell whether a content holds a value: as it is, packed, or in a form that the rules see through."""
    raw = value.encode("utf-8", "surrogateescape")
    if content is None:
        return True  # it cannot be read: nothing is known
    if isinstance(content, Large):
        return _streams(content, raw)
    if any(raw in text for text in (content, *(text for _, text in unpack_texts(content, UnpackBudget())))):
        return True
    return any(reveal(hit.secret) == value for _, hit in scan_content(ruleset, content, Confidence.LOW).hits)


def _streams(content: Large, raw: bytes) -> bool:
    """Look for a value in an object that is too large to be held."""
    kept = b""
    while piece := content.read(_PIECE):
        if raw in kept + piece:
            return True
        kept = (kept + piece)[-len(raw) :]
    return content.cut
