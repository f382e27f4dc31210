"""What is installed is what is pinned: nothing that a package needs is left to be found on the day of the installation."""

import subprocess
import sys


def test_every_package_has_what_it_needs():
    reported = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert (reported.returncode, reported.stdout) == (0, "No broken requirements found.\n")
