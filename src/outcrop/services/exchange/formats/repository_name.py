"""Names of repositories as other tools give them: by an address."""

import re

_ADDRESS = re.compile(r"(?:(?:https?|ssh|git)://(?:[^/@]+@)?[^/]+/|git@[^:/]+:)(?P<path>[^?#]+)")


def repository_of(address: object) -> str | None:
    """Give owner and name of the repository that an address names, or names a file of."""
    match = _ADDRESS.match(address) if isinstance(address, str) else None
    if match is None:
        return None
    path = match["path"].partition("/-/")[
        0
    ]  # how GitLab marks where the name ends, which may have many parts there
    parts = [part for part in path.split("/") if part]
    if path == match["path"]:
        parts = parts[:2]
    return "/".join(parts).removesuffix(".git") if len(parts) >= 2 else None
