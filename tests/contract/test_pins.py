"""Test that the installed packages are the pinned packages.

Every package that another package needs is pinned, so that an installation does not resolve versions.
"""

import subprocess
import sys


def test_every_package_has_what_it_needs():
    reported = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert (reported.returncode, reported.stdout) == (0, "No broken requirements found.\n")
