"""Find the address of a scanned repository, as a report to the service names it."""

import os
from pathlib import Path

from outcrop.sources.git.repository import read_origin
from outcrop.sources.located import printable_path
from outcrop.sources.repository_address import normalise_repository


def find_address(path: Path) -> str:
    """Return the address of the remote `origin` of the repository at `path`, otherwise the path itself."""
    return normalise_repository(read_origin(path)) or printable_path(os.fsencode(path.resolve()))
