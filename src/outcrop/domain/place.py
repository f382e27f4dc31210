"""Where a credential stands, in the form that stays the same from scan to scan."""

import hashlib
from urllib.parse import urlsplit

from outcrop.domain.finding import SourceType

_ON_THE_WEB = {SourceType.ENDPOINT, SourceType.JS_BUNDLE}


def source_of(source_type: SourceType, repo_full_name: str | None, source_url: str | None) -> str | None:
    """Name the source: a site's origin, or a repository's address; None where nothing names it."""
    parts = urlsplit(source_url or "")
    host = parts.netloc.rpartition("@")[2].lower()
    if source_type in _ON_THE_WEB:
        return f"{parts.scheme.lower()}://{host}" if host else None
    if repo_full_name:
        return f"https://{host or 'github.com'}/{repo_full_name.lower()}"
    return None


def identity(source: str, path: str, fingerprint: bytes) -> bytes:
    """Identify one credential at one place in 32 bytes, however long the path is."""
    return hashlib.sha256(b"\0".join([source.encode(), path.encode("utf-8", "surrogateescape"), fingerprint])).digest()
