"""`make test-interop` reports a check that cannot run as not run, and its exit status says so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.node import NotAvailableError, install

ROOT = Path(__file__).parents[1]
PASSES = "def test_what_holds() -> None:\n    assert True\n"
FAILS = "def test_what_does_not_hold() -> None:\n    assert False\n"
CANNOT_RUN = (
    "import pytest\n\n\n@pytest.fixture\ndef node() -> None:\n    pytest.skip('Node: no network')\n\n\n"
    "def test_what_needs_node(node: None) -> None:\n    assert True\n"
)
PASSED, FAILED = "passed   what holds", "failed   what does not hold"
NOT_RUN = "not run  what needs node (Node: no network)"


@pytest.mark.parametrize(
    ("checks", "status", "report"),
    [
        ([PASSES], 0, [PASSED, "1 passed, 0 failed, 0 not run"]),
        ([CANNOT_RUN, PASSES], 3, [NOT_RUN, PASSED, "1 passed, 0 failed, 1 not run"]),
        ([CANNOT_RUN, FAILS], 1, [NOT_RUN, FAILED, "0 passed, 1 failed, 1 not run"]),
        ([], 1, ["0 passed, 0 failed, 0 not run"]),
    ],
    ids=["passed", "not run", "failed", "nothing"],
)
def test_the_exit_status_distinguishes_passed_failed_and_not_run(
    tmp_path: Path, checks: list[str], status: int, report: list[str]
) -> None:
    for n, check in enumerate(checks):
        (tmp_path / f"test_{n}.py").write_text(check)
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop", tmp_path],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.rpartition("\n\n")[2].splitlines() == report, done.stdout + done.stderr
    assert done.returncode == status


def test_without_a_network_the_reason_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"outcrop-absent==1 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(NotAvailableError, match=r"^Node: ERROR: .*outcrop-absent==1"):
        install(requirements, tmp_path)


def test_a_file_that_does_not_match_its_hash_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "outcrop_absent-1-py3-none-any.whl").write_bytes(b"another file")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"outcrop-absent==1 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(RuntimeError, match="the lock file is wrong"):
        install(requirements, tmp_path)


def test_the_checks_are_collected_only_if_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "interop").mkdir()
    for path in ("test_here.py", "interop/test_there.py"):
        (tmp_path / path).write_text(PASSES)

    def collected(folder: Path) -> list[str]:
        options = ("-c", ROOT / "pyproject.toml", "-n", "0", "--collect-only")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, folder],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return re.findall(r"test_\w+\.py", done.stdout)

    assert collected(tmp_path) == ["test_here.py"]
    assert collected(tmp_path / "interop") == ["test_there.py"]
