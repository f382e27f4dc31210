"""How a command ends when it fails."""

import contextlib
import sys
from typing import NoReturn


def fail(message: str) -> NoReturn:
    with contextlib.suppress(OSError):
        print(f"outcrop: {message}", file=sys.stderr)
    sys.exit(2)
