"""Compare releases of Outcrop by their numbers."""

import re

Release = tuple[int, ...]  # 0.2.0 is (0, 2, 0)


def parse_release(version: str) -> Release:
    """Return the numbers at the start of a version; `0.3.0rc1` is (0, 3, 0), like its final release."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    if match is None:
        raise ValueError(f"{version!r} is not a version")
    return tuple(int(number) for number in match[0].split("."))


def format_release(release: Release) -> str:
    """Return the numbers of a release as people write them, such as `0.2.0`."""
    return ".".join(map(str, release))
