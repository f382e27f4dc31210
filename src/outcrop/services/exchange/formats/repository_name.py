"""Parse the names of repositories from the addresses in other tools' reports."""

import re

_ADDRESS = re.compile(r"(?:(?:https?|ssh|git)://(?:[^/@]+@)?[^/]+/|git@[^:/]+:)(?P<path>[^?#]+)")


def parse_repository_name(address: object) -> str | None:
    """Return OWNER/NAME from the address of a repository or of a file in one; None if there is none."""
    match = _ADDRESS.match(address) if isinstance(address, str) else None
    if match is None:
        return None
    # GitLab ends the name, which can have more than two parts, with "/-/".
    path, gitlab_separator, _ = match["path"].partition("/-/")
    parts = [part for part in path.split("/") if part]
    if not gitlab_separator:
        parts = parts[:2]
    return "/".join(parts).removesuffix(".git") if len(parts) >= 2 else None
