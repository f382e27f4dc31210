"""The TLS context of outbound connections."""

import ssl
from functools import lru_cache
from pathlib import Path

from outcrop.net.guard import Egress


def tls_context(egress: Egress) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities and those in the operator's `ca_file`.

    The context is cached until one of the files changes.
    """
    paths = ssl.get_default_verify_paths()
    return _load_tls_context(egress.ca_file, *map(_modified_ns, (paths.cafile, paths.capath, egress.ca_file)))


@lru_cache(maxsize=4)
def _load_tls_context(ca_file: Path | None, *_modified: int) -> ssl.SSLContext:
    """Load the trusted authorities, which takes 40 ms. Changed modification times make a new cache entry."""
    context = ssl.create_default_context()
    if ca_file:
        context.load_verify_locations(ca_file)
    return context


def _modified_ns(path: str | Path | None) -> int:
    """Return the modification time of a file in nanoseconds, 0 if there is no file."""
    try:
        return Path(path).stat().st_mtime_ns if path else 0
    except OSError:
        return 0
