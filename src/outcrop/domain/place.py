"""Identify the place of a credential (source, path, value) so that rescans recognise it."""

import hashlib
from urllib.parse import quote, urlsplit

from outcrop.domain.finding import SourceType
from outcrop.lazy_regex import regex

# Pseudo paths of commit and tag messages. Git uses these file names; no tracked file can have such a path.
COMMIT_MESSAGE, TAG_MESSAGE = b".git/COMMIT_EDITMSG", b".git/TAG_EDITMSG"
# The origin of an ordinary URL. Only this part is parsed: millions of imported URLs have few origins, and
# parsed ones are cached.
_ORIGIN = regex(r"https?://[A-Za-z0-9.:-]+(?=[/?#]|\Z)")
# First byte of the path that is stored with a finding, unmasked or encrypted.
PLAIN_PATH, SEALED_PATH = b"\0", b"\1"
SERVED_TYPES = frozenset({SourceType.ENDPOINT, SourceType.JS_BUNDLE})  # what web sites serve


def source_of(source_type: SourceType, repo_full_name: str | None, source_url: str | None) -> str | None:
    """Return the source's address: a site's origin or a repository's URL; None if neither is known."""
    origin = _ORIGIN.match(source_url or "")
    parts = urlsplit(origin[0] if origin else source_url or "")
    host = parts.netloc.rpartition("@")[2].lower()
    if source_type in SERVED_TYPES:
        return f"{parts.scheme.lower()}://{host}" if host else None
    if repo_full_name:
        return f"https://{host or 'github.com'}/{repo_full_name.lower()}"
    return None


def identity(source: str, path: str, fingerprint: bytes) -> bytes:
    """Return a SHA-256 that identifies one credential (by fingerprint) in one path of a source."""
    return hashlib.sha256(
        b"\0".join([source.encode(), path.encode("utf-8", "surrogateescape"), fingerprint])
    ).digest()


_GITHUB = ("/blob/", "/commit/")  # path segments of file URLs and of commit URLs
_HOSTS = {
    "github.com": _GITHUB,
    "gitlab.com": ("/-/blob/", "/-/commit/"),
    "bitbucket.org": ("/src/", "/commits/"),
}


def line_address(
    base: str, commit: str | None, path: bytes | None, line: int, *, github: bool = False
) -> str:
    """Return the URL of a line on hosts whose URL scheme is known, otherwise the URL of the repository.

    `github` means that `base` is a GitHub instance, whatever its host name.
    """
    base = base.removesuffix("/").removesuffix(".git")
    known = _GITHUB if github else _HOSTS.get(urlsplit(base).hostname or "")
    if known is None or commit is None or path is None:
        return base
    if path in {COMMIT_MESSAGE, TAG_MESSAGE}:
        return f"{base}{known[1]}{commit}"
    return f"{base}{known[0]}{commit}/{quote(path.partition(b'!')[0])}#L{line}"
