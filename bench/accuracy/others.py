"""What detect-secrets and Kingfisher report on the same files, from packages in their own environments.

Both run with their defaults and without any validation. Kingfisher scans all files. detect-secrets scans
less than 0.1 MB a second, so it gets a seeded sample of the files: configuration files and others.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.accuracy.files import is_configuration
from bench.accuracy.sample import order_of
from bench.accuracy.scans import Scanner
from bench.accuracy.tree import TreeFile
from bench.scan import KINGFISHER

DETECT_SECRETS = "detect-secrets==1.5.0"

FILES_EACH = 30  # configuration files, and other files, that detect-secrets scans in a repository
_FILE_LIMIT = 30_000  # bytes

_DETECT = """\
import json, sys
from detect_secrets.core.scan import scan_file
from detect_secrets.settings import default_settings
with default_settings():
    for path in map(json.loads, sys.stdin):
        for secret in scan_file(path):
            entry = {"file_path": path, "line_number": secret.line_number, "rule": secret.type}
            print(json.dumps(entry | {"secret": secret.secret_value}))
"""


def other_scanners(work: Path) -> list[Scanner]:
    """Return both scanners, installed below `work` if they are not yet."""
    python = _install(DETECT_SECRETS, work) / "bin" / "python"
    kingfisher = next(_install(KINGFISHER, work).glob("lib/python*/site-packages/kingfisher/bin/kingfisher"))
    return [
        Scanner("detect-secrets", DETECT_SECRETS.partition("==")[2], partial(_run_detect_secrets, python)),
        Scanner("kingfisher", KINGFISHER.partition("==")[2], partial(_run_kingfisher, kingfisher, work)),
    ]


def _install(package: str, work: Path) -> Path:
    """Return a virtual environment with the package."""
    environment = work / package.replace("==", "-")
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = str(environment / "bin" / "pip")
        subprocess.run([pip, "install", "--quiet", "--disable-pip-version-check", package], check=True)
    return environment


def choose_paths(files: Iterable[tuple[str, int]]) -> list[str]:
    """Return the paths that detect-secrets scans, from paths and sizes of all files."""
    small = [TreeFile(path, "", size) for path, size in files if 0 < size <= _FILE_LIMIT]
    ordered = sorted(small, key=lambda file: order_of("detect", file.path))
    chosen = [file for file in ordered if is_configuration(file)][:FILES_EACH]
    chosen += [file for file in ordered if not is_configuration(file)][:FILES_EACH]
    return sorted(file.path for file in chosen)


def paths_below(folder: Path) -> list[tuple[str, int]]:
    """Return path and size of each file in a folder."""
    return [
        (str(file.relative_to(folder)), file.stat().st_size) for file in folder.rglob("*") if file.is_file()
    ]


def _run_detect_secrets(python: Path, folder: Path, output: Path) -> None:
    """Write a line for each scanned file without a value, and one for each finding."""
    part = output.with_suffix(".part")
    paths = choose_paths(paths_below(folder))
    with part.open("w") as file, output.with_suffix(".err").open("wb") as errors:
        file.writelines(json.dumps({"scanned": path}) + "\n" for path in paths)
        file.flush()
        subprocess.run(
            [str(python), "-c", _DETECT],
            cwd=folder,
            input="".join(json.dumps(path) + "\n" for path in paths).encode(),
            stdout=file,
            stderr=errors,
            check=True,
        )
    part.rename(output)


def _run_kingfisher(program: Path, work: Path, folder: Path, output: Path) -> None:
    part = output.with_suffix(".json")
    options = ["--no-validate", "--no-update-check", "--format", "json", "-o", str(part)]
    with output.with_suffix(".err").open("wb") as errors:
        code = subprocess.run(
            [str(program), "scan", *options, str(folder)],
            env={"KF_RULE_CACHE_DIR": str(work / "kingfisher-rules"), "HOME": str(work)},
            stdout=errors,
            stderr=errors,
            check=False,
        ).returncode
    if code not in (0, 200):  # 200: some findings
        raise SystemExit(f"Kingfisher ended with {code}: see {output.with_suffix('.err')}")
    report = part.read_bytes()
    entries = json.loads(report)["findings"] if report.strip() else []
    output.write_text("".join(json.dumps(_kingfisher_entry(entry, folder)) + "\n" for entry in entries))
    part.unlink()


def _kingfisher_entry(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a finding of Kingfisher with the names of fields that all reports have here."""
    finding = entry["finding"]
    return {
        "file_path": str(Path(finding["path"]).relative_to(folder)),
        "line_number": finding["line"],
        "rule": entry["rule"]["id"],
        "secret": finding["snippet"],
    }
