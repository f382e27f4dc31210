"""Tests in forked processes, with one that ends its process."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRINTS = """
import os, pytest
@pytest.fixture(scope="session")
def process():
    return os.getpid()
def test_a(process, worker_id):
    print("from", worker_id, process, os.getpid())
def test_b(process):
    assert process == os.getpid()
    assert os.getppid() == {parent}
"""
FAILS = """
def test_fails():
    print("a hint")
    assert False
"""
ENDS_ITS_PROCESS = """
import os, time
def test_ends_its_process():
    os._exit(3)
def test_never_runs():
    pass
"""


def run(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest in a folder in processes, without our fixtures and other plugins."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.forked", "-c", os.devnull, *options, folder],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_file_runs_in_a_process_that_collected_nothing(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(
            f"COLLECTED_BY = __import__('os').getpid()\n{PRINTS.format(parent='COLLECTED_BY')}"
        )
    ran = run(tmp_path, "-n", "2", "-rP")
    assert ran.returncode == 0, ran.stdout
    assert "8 passed" in ran.stdout
    names = re.findall(r"^from (w[01]) (\d+) \2$", ran.stdout, re.MULTILINE)
    assert len(names) == 4
    assert len(set(names)) == len({name for name, _ in names})


def test_a_process_that_ends_is_a_failure_and_the_other_files_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(ENDS_ITS_PROCESS)
    (tmp_path / "test_b.py").write_text(FAILS)
    (tmp_path / "test_c.py").write_text("def test_passes(): pass")
    ran = run(tmp_path, "-n", "2")
    assert ran.returncode == 1
    assert "2 failed, 1 passed" in ran.stdout
    assert "ended with status 3" in ran.stdout
    assert "a hint" in ran.stdout
    stopped = run(tmp_path, "-n", "1", "-x")
    assert stopped.returncode == 1
    assert "1 failed in" in stopped.stdout, stopped.stdout
