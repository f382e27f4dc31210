"""Repositories that change and are scanned again and again while a trial breaks the service."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prove.repositories import Repository
from prove.service import Service, until
from prove.trial import Report
from tests.support.git_host import git_host

_SLUG = "scanned"
_REPOSITORIES = 3
_ENDED = {"completed", "failed"}


class ScanLoad:
    """An account whose repositories are scanned by the workers of a service."""

    def __init__(self, root: Path, ca: Path, port: int) -> None:
        self._root = root
        self.ca = ca
        self.connect_to = f"git.example:443=127.0.0.1:{port}"
        self._key = ""
        self._targets: dict[str, Repository] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._runs = 0

    def connect(self, service: Service, rng: random.Random) -> None:
        """Create the account with its repositories and targets; begin to change and to scan them."""
        self._key = service.account(_SLUG)
        for number in range(_REPOSITORIES):
            repository = Repository(self._root / f"s{number}.git", rng)
            repository.add_token()
            address = f"https://git.example/s{number}.git"
            target = service.command("target", "add", "--account", _SLUG, address)
            self._targets[target["id"]] = repository
        self._thread = threading.Thread(
            target=self._keep_scanning, args=(service, random.Random(rng.random())), daemon=True
        )
        self._thread.start()

    def _keep_scanning(self, service: Service, rng: random.Random) -> None:
        """Change a repository and start a run of it, until the trial ends."""
        while not self._ended.wait(rng.uniform(0, 4)):
            target, repository = rng.choice(sorted(self._targets.items()))
            repository.change()
            with suppress(RuntimeError, ValueError):  # the database is away, or a run is waiting already
                service.command("target", "run", "--account", _SLUG, target)
                self._runs += 1

    def verify(self, service: Service, report: Report) -> None:
        """Scan every repository once more, and compare the findings with what git reaches."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        report.count("runs under faults", self._runs)
        for target, repository in self._targets.items():
            until(lambda: not self._open_runs(service), "the end of the runs that were started", 600)
            run = service.command("target", "run", "--account", _SLUG, target)["id"]
            status = self._wait_for(service, run)
            report.check(status == "completed", f"a run after the faults is {status}")
            name = repository.folder.name.removesuffix(".git")
            findings = [f for f in service.findings(self._key) if f"/{name}" in f["source_url"]]
            active = sorted(f["file_path"] for f in findings if f["status"] == "active")
            truth = sorted(path for path, _ in repository.truth())
            report.check(active == truth, f"{name}: open {active}, git reaches {truth}, {repository.log}")
            places = [(f["file_path"], f["matched_text"]) for f in findings]
            report.check(len(places) == len(set(places)), f"{name}: a place has two findings")

    def _open_runs(self, service: Service) -> bool:
        runs = service.get("/scans", self._key, limit=100).json["data"]
        return any(run["status"] not in _ENDED for run in runs)

    def _wait_for(self, service: Service, run: str) -> str:
        """Wait for the end of a run and return its status."""

        def probe() -> str | None:
            status = str(service.get(f"/scans/{run}", self._key).json["data"]["status"])
            return status if status in _ENDED else None

        return until(probe, "a run to end", 600)


@contextmanager
def open_scan_load(folder: Path) -> Iterator[ScanLoad]:
    """Serve the repositories; they are created by `connect`."""
    root, tls = folder / "repositories", folder / "tls"
    tls.mkdir(parents=True)
    with git_host(root, tls, hours=(-1, 48)) as host:
        load = ScanLoad(root, host.ca, host.port)
        try:
            yield load
        finally:
            load._ended.set()


def both_environments(folder: Path, first: dict[str, str], scans: ScanLoad) -> dict[str, str]:
    """Return network settings that reach the oracle's receiver and the repositories."""
    trusted = folder / "all.pem"
    trusted.write_bytes(Path(first["OUTCROP_EGRESS_CA_FILE"]).read_bytes() + scans.ca.read_bytes())
    return first | {
        "OUTCROP_EGRESS_CONNECT_TO": f"{first['OUTCROP_EGRESS_CONNECT_TO']},{scans.connect_to}",
        "OUTCROP_EGRESS_CA_FILE": str(trusted),
    }
