"""Scan the repositories of part 2 with `outcrop scan`, once for each commit and each state of the scanner."""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import outcrop
from bench.accuracy.repositories import ListedRepository
from bench.accuracy.tree import exported

CONFIDENCES = ("high", "medium", "low")
_OUTCROP = Path(outcrop.__file__).parent
_MASK = "********"  # a report has it in a path for the part that is the reported value


@dataclass(frozen=True)
class Reported:
    """A value that a scanner reports in a file. Several lines or rules with the same value are one."""

    repo: str
    path: str
    line: int  # the first one
    rule: str
    confidence: str
    value: str

    @property
    def digest(self) -> str:
        """Return the digest of the value."""
        return digest_of(self.value)

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what labels are matched by."""
        return self.repo, self.path, self.digest


def digest_of(value: str) -> str:
    """Return 20 bits of the SHA-256 of a value as 5 hex digits."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:5]


@dataclass(frozen=True)
class Scanner:
    """A scanner whose reports are kept by its name, its state and the commit."""

    name: str
    state: str  # changes with everything that changes what it reports
    run: Callable[[Path, Path], None]  # writes the report on a folder to a file

    def report(self, work: Path, repository: ListedRepository) -> Path:
        """Return the file of the report on a repository."""
        name = f"{repository.repo.replace('/', '+')}-{repository.commit[:12]}.jsonl"
        return work / "reports" / f"{self.name}-{self.state}" / name


def outcrop_scanner() -> Scanner:
    """Return `outcrop scan` of this checkout."""
    return Scanner("outcrop", scanner_state(), run_outcrop)


def run_outcrop(folder: Path, output: Path) -> None:
    """Write the findings in a folder to a file, one JSON object a line, with raw values."""
    program = str(Path(sys.executable).with_name("outcrop"))
    options = ["--format", "jsonl", "--reveal", "--no-validate", "--confidence", "low", "--no-cache"]
    part, errors = output.with_suffix(".part"), output.with_suffix(".err")
    with part.open("wb") as file, errors.open("wb") as error_file:
        code = subprocess.run(
            [program, "scan", str(folder), *options], stdout=file, stderr=error_file, check=False
        ).returncode
    if code not in (0, 1, 2):  # 2: some file could not be read
        raise SystemExit(f"outcrop ended with {code}: {errors.read_text(errors='replace')[-2000:]}")
    part.rename(output)


def read_report(repo: str, report: Path) -> list[Reported]:
    """Return each value of each file once, with the highest confidence of its findings."""
    best: dict[tuple[str, str, str], Reported] = {}
    with report.open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            found = Reported(
                repo,
                entry["file_path"].replace(_MASK, entry["secret"]),
                entry["line_number"] or 1,
                entry["rule"],
                entry["confidence"],
                entry["secret"],
            )
            known = best.get(found.key)
            if known is None or CONFIDENCES.index(found.confidence) < CONFIDENCES.index(known.confidence):
                best[found.key] = found
    return sorted(best.values(), key=lambda found: (found.path, found.line, found.value))


@cache
def scanner_state() -> str:
    """Return the release and a digest of all that decides what a scan finds."""
    digest = hashlib.sha256()
    for part in ("rules", "scanner", "sources"):
        for file in sorted((_OUTCROP / part).rglob("*")):
            if file.suffix in (".py", ".toml", ".txt", ".json"):
                digest.update(f"{file.relative_to(_OUTCROP)}\0".encode() + file.read_bytes())
    return f"{outcrop.__version__}-{digest.hexdigest()[:12]}"


def scan_repositories(
    present: Iterable[tuple[ListedRepository, Path]], work: Path, scanners: Sequence[Scanner]
) -> None:
    """Write the report of each scanner for each repository to the work folder, unless it is there."""
    for repository, git_dir in present:
        missing = [scanner for scanner in scanners if not scanner.report(work, repository).exists()]
        if not missing:
            continue
        with exported(git_dir, repository.commit, work) as folder:
            for scanner in missing:
                start = time.perf_counter()
                report = scanner.report(work, repository)
                report.parent.mkdir(parents=True, exist_ok=True)
                scanner.run(folder, report)
                seconds = time.perf_counter() - start
                print(f"{repository.repo}: {scanner.name}, {seconds:,.0f} s", file=sys.stderr)
