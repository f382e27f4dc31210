"""`make sbom`: the bill of materials has every locked package, and is the same for the same lock file."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outcrop import __version__

ROOT = Path(__file__).parents[2]


def bill(lock: Path) -> Any:
    command = [ROOT / "tools/make-sbom", lock, __version__]
    first, second = (subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2))
    assert first == second
    return json.loads(first)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_locked_package_is_in_the_bill(name: str) -> None:
    lock = (ROOT / name).read_text()
    document = bill(ROOT / name)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    pinned = re.findall(r"^([a-z0-9-]+)(?:\[.*?\])?==([^\s;]+)", lock, re.MULTILINE)
    assert [(part["name"], part["version"]) for part in document["components"]] == pinned
    assert len({part["bom-ref"] for part in document["components"]}) == len(pinned) > 40
    assert document["dependencies"][0]["dependsOn"] == [part["bom-ref"] for part in document["components"]]
    hashes = [
        entry["value"]
        for part in document["components"]
        for entry in part["properties"]
        if entry["name"] == "outcrop:sha256-of-file"
    ]
    assert hashes == re.findall(r"sha256:([0-9a-f]{64})", lock)


def test_another_lock_file_has_another_number(tmp_path: Path) -> None:
    text = (ROOT / "requirements.txt").read_text()
    changed = tmp_path / "requirements.txt"
    changed.write_text(text.replace("==", "==9", 1))
    assert bill(changed)["serialNumber"] != bill(ROOT / "requirements.txt")["serialNumber"]
