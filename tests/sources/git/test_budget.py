"""A hostile repository costs no more than the limits of a source; what was found before is kept."""

import hashlib
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outcrop.domain.finding import Confidence
from outcrop.limits import MEGA, SOURCE_LIMITS, SourceLimits
from outcrop.net.guard import Egress
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.budget import SourceBudget
from outcrop.sources.git.known_secrets import EarlierScan, KnownSecret
from outcrop.sources.git.repository import open_local
from outcrop.sources.git.scan import GitScan, scan_history
from outcrop.sources.isolated.repository_job import RepositoryJob, run_job
from tests.sources.conftest import Repo, Scan, token
from tests.sources.git.test_pack import entry, varint, write_pack

FIRST, SECOND, THIRD = token("first"), token("second"), token("third")
QUICK = replace(SOURCE_LIMITS, idle_cpu=1.5, cpu_per_commit=0.0, cpu_per_packed_megabyte=0.0)


def cpu_seconds() -> float:
    return sum(os.times()[:4])


def commit_bomb(repo: Repo, files: int, depth: int) -> None:
    """Commit a small tree that expands to `files` ** `depth` paths."""
    tree = repo.tree(("100644", b"x", repo.blob(f"{THIRD}\n".encode())))
    for _ in range(depth):
        tree = repo.tree(*(("40000", b"d%d" % number, tree) for number in range(files)))
    repo.commit_tree(tree, repo.git("rev-parse", "HEAD"))


def test_a_history_of_tree_bombs_is_cut_short_and_keeps_what_was_found(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    for depth in range(9, 13):
        commit_bomb(repo, 10, depth)
    repo.commit({"b": f"{SECOND}\n"})
    limits = replace(QUICK, diff_memory=200 << 20)
    before = cpu_seconds()
    scanned = scan(repo.path, limits=limits)
    assert cpu_seconds() - before < 20  # without a limit: 10 seconds and more for each bomb
    assert {FIRST, SECOND} <= {*scanned.secrets}
    assert scanned.of(SECOND)["file_path"] == "b"
    assert scanned.has_gap("nothing new was found in 1.5 CPU seconds")


def test_a_job_that_is_cut_short_is_incomplete_and_has_the_gap(
    repo: Repo, ruleset: RuleSet, tmp_path: Path
) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    commit_bomb(repo, 10, 10)
    repo.commit({"b": f"{SECOND}\n"})
    limits = replace(QUICK, diff_memory=200 << 20)
    job = RepositoryJob(folder=repo.path)
    result = run_job(job, ruleset, Egress(), tmp_path, lambda *_: None, limits)
    assert b"b" in {place.path for place in result.located}
    assert not result.is_complete
    assert any("nothing new was found" in why for _, why in result.gaps)


def comb_of_deltas(teeth: int) -> list[bytes]:
    """Return entries of a long delta chain with a side branch at each of its objects."""
    size = 1_000_000  # few of these objects are cached
    text = b"".join(hashlib.sha256(b"%d" % number).hexdigest().encode() for number in range(size // 64))
    entries = [entry(3, len(text), text)]
    offset = previous = 12

    def add(base: int, number: int) -> int:
        """Add a delta that replaces the first eight bytes of the object at the offset `base`."""
        nonlocal offset
        offset = 12 + sum(map(len, entries))
        copy = bytes([0x80 | 0x01 | 0x70, 8]) + (len(text) - 8).to_bytes(3, "little")
        delta = varint(len(text)) + varint(len(text)) + b"\x08" + b"%08d" % number + copy
        distance = offset - base
        encoded = [distance & 0x7F]
        while distance := distance >> 7:
            distance -= 1
            encoded.append(0x80 | distance & 0x7F)
        entries.append(entry(6, len(delta), delta, bytes(reversed(encoded))))
        return offset

    for number in range(teeth):
        backbone = previous
        previous = add(backbone, 2 * number)
        add(backbone, 2 * number + 1)
    return entries


def test_a_comb_of_deltas_is_cut_short(repo: Repo, ruleset: RuleSet, tmp_path: Path) -> None:
    """Each side branch is read after the end of the chain: all objects before it are built again."""
    repo.commit({"a": f"{FIRST}\n"})
    entries = comb_of_deltas(700)
    oids = sorted(hashlib.sha1(b"%d" % number).digest() for number in range(len(entries)))
    shutil.rmtree(repo.path / ".git" / "objects" / "pack")
    write_pack(repo.path / ".git" / "objects", entries, oids)
    limits = replace(QUICK, cpu_per_object=0.0)
    before = cpu_seconds()
    with SourceBudget(limits).watch(tmp_path) as budget:
        repository = open_local(repo.path / ".git", tmp_path, budget)
        scan = GitScan(repository, ruleset, Confidence.MEDIUM, 1, lambda _: None)
        outcome = scan_history(scan)
    assert cpu_seconds() - before < 15
    assert any("nothing new was found" in why for _, why in outcome.gaps)


def test_an_ordinary_repository_is_not_cut_short(repo: Repo, scan: Scan) -> None:
    for number in range(30):
        repo.commit({f"file{number}": f"{token(f'value {number}')}\n" * 50})
    scanned = scan(repo.path, limits=replace(SOURCE_LIMITS, idle_cpu=3.0))
    assert len(set(scanned.secrets)) == 30
    assert not scanned.gaps


# The budget itself

SPIN = [sys.executable, "-c", "while True: pass"]
GROW = [sys.executable, "-c", "import time; held = bytearray(b'x') * 300_000_000; time.sleep(60)"]


@pytest.mark.parametrize(
    ("command", "limits", "text"),
    [
        (SPIN, replace(SOURCE_LIMITS, idle_cpu=0.5), "nothing new was found in 0.5 CPU seconds"),
        (SPIN, replace(SOURCE_LIMITS, seconds=0.5), "the time limit of 0.5 seconds"),
        (GROW, replace(SOURCE_LIMITS, memory=-1), "memory limit"),
    ],
    ids=["cpu", "deadline", "memory"],
)
def test_a_process_past_a_limit_is_killed(command: list[str], limits: SourceLimits, text: str) -> None:
    if limits.memory < 0:  # this process has some memory itself
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        limits = replace(limits, memory=pages * resource.getpagesize() + 150 * MEGA)
    with SourceBudget(limits).watch() as budget, subprocess.Popen(command) as process:
        process.wait(60)
    assert process.returncode == -9
    assert budget.reason is not None
    assert text in budget.reason


def test_the_processes_of_others_are_not_killed() -> None:
    limits = replace(SOURCE_LIMITS, seconds=0.1)
    with subprocess.Popen(["sleep", "60"]) as other:
        with SourceBudget(limits).watch() as budget, subprocess.Popen(["sleep", "60"]) as own:
            assert own.wait(60) == -9
        assert budget.reason
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (replace(SOURCE_LIMITS, disk=MEGA), "the working folder has reached its limit of 1 MB"),
        (replace(SOURCE_LIMITS, total_disk=MEGA), "all working folders have reached their limit of 1 MB"),
        (replace(SOURCE_LIMITS, free_disk=1 << 60), "are free on the disk"),
    ],
    ids=["source", "total", "free"],
)
def test_a_process_that_fills_the_working_folder_is_killed(
    tmp_path: Path, limits: SourceLimits, text: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    command = ["sh", "-c", "head -c 4000000 /dev/urandom > pack; exec sleep 60"]
    with SourceBudget(limits).watch(work) as budget, subprocess.Popen(command, cwd=work) as process:
        process.wait(60)
    assert process.returncode == -9
    assert budget.reason is not None
    assert text in budget.reason


def test_work_explains_cpu_time_but_is_not_saved_up() -> None:
    budget = SourceBudget(replace(SOURCE_LIMITS, idle_cpu=0.3))
    budget.explain(objects=10**9)
    with budget.watch(), subprocess.Popen(SPIN) as process:
        process.wait(60)
    assert budget.reason is not None


def test_a_large_repository_may_cost_more_before_it_yields() -> None:
    budget = SourceBudget(replace(SOURCE_LIMITS, idle_cpu=0.1))
    budget.explain_packs(2_000 * MEGA)
    with budget.watch():
        end = cpu_seconds() + 1
        while cpu_seconds() < end:
            hashlib.sha256(bytes(1_000_000))
        assert budget.find_exceeded() is None
    assert budget.reason is None


# Findings


def test_findings_beyond_the_limit_are_counted(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    values = [token(f"value {number}") for number in range(12)]
    repo.commit({"a": "\n".join(values)})
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("\n".join(values))
    limits = replace(SOURCE_LIMITS, findings=10)
    for target in (repo.path, tmp_path / "folder"):
        scanned = scan(target, limits=limits)
        assert len(scanned.secrets) == 10
        assert scanned.has_gap("2 more findings: only 10 of one source are recorded")


def test_a_job_with_too_many_findings_resolves_nothing(repo: Repo, ruleset: RuleSet, tmp_path: Path) -> None:
    """All known secrets are still present, and the next job scans everything again."""
    values = [token(f"value {number}") for number in range(12)]
    repo.commit({"a": "\n".join(values)})
    known = tuple(KnownSecret(b"a", frozenset(), value) for value in [*values, token("gone")])
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("\n".join(values))
    for source in (repo.path, folder):
        job = RepositoryJob(folder=source, known=EarlierScan((), known))
        limits = replace(SOURCE_LIMITS, findings=10)
        result = run_job(job, ruleset, Egress(), tmp_path, lambda *_: None, limits)
        assert len(result.located) == 10
        assert result.known_present == [True] * 12 + [False]
        assert not result.is_complete
        assert ("", "2 more findings: only 10 of one source are recorded") in result.gaps
