"""Generate a Python client from an OpenAPI document with `openapi-python-client`, and run a program with it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def generate_client(document: dict[str, Any], folder: Path) -> None:
    """Generate the package `outcrop_client` in the folder."""
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "config.yml").write_text("post_hooks: []\n")
    reported = _python(
        *("-m", "openapi_python_client", "generate", "--path", "openapi.json", "--config", "config.yml"),
        *("--meta", "none", "--output-path", "outcrop_client", "--fail-on-warning"),
        folder=folder,
    )
    assert "warning" not in reported.lower()


def run_program(text: str, *arguments: str, folder: Path) -> Any:
    """Run a program beside the generated package, warnings as errors; return what it prints as JSON."""
    (folder / "use.py").write_text(text)
    return json.loads(_python("-W", "error", "use.py", *arguments, folder=folder))


def _python(*arguments: str, folder: Path) -> str:
    """Run Python in the folder; return its output."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
