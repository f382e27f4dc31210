"""An account under load: the oracle changes its findings while a trial breaks the service."""

import json
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prove.service import Service, until
from prove.trial import Report
from tests.support.tls import make_certificate

RECEIVER = "hooks.example"
SLUG = "prove"


@dataclass
class Load:
    """The oracle's process, and the environment in which the service reaches its receiver."""

    process: "subprocess.Popen[str]"
    folder: Path
    environment: dict[str, str]
    key: str = ""

    def _ask(self, *lines: str) -> dict[str, Any]:
        """Send a command and return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        """Return the next answer. Raise if the oracle has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the oracle ended: {(self.folder / 'oracle.log').read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def connect(self, service: Service, rng: random.Random, *, findings: int) -> None:
        """Create the account with its findings and its webhook, and connect the oracle to it."""
        self.key = service.account(SLUG)
        service.command("webhook", "set", "--account", SLUG, f"https://{RECEIVER}/in")
        lines = "".join(json.dumps(_line(rng)) + "\n" for _ in range(findings))
        service.command("import", "--account", SLUG, "-", stdin=lines)
        self._ask(f"connect {service.base_url}", self.key)

    def resume(self) -> None:
        """Let the oracle change findings."""
        self._ask("resume")

    def verify(self, service: Service, report: Report) -> None:
        """Stop the changes, wait until every event has an outcome, and compare."""
        self._ask("pause")
        self._ask("finish")
        audit = self.folder / "audit.json"

        def has_all_events() -> bool:
            audit.write_text(service.run("audit", "--account", SLUG, "--json"))
            return bool(self._ask(f"missing {audit}")["missing"] == 0)

        with suppress(TimeoutError):  # the comparison reports what is missing
            until(has_all_events, "an outcome of every event")
        answer = self._ask(f"verify {audit}")
        for what, number in answer["counts"].items():
            report.count(what, number)
        report.tried += sum(
            answer["counts"].get(what, 0)
            for what in ("compared", "totals", "events", "deliveries", "imports")
        )
        report.failures += answer["failures"]


def _line(rng: random.Random) -> dict[str, Any]:
    """Return a random finding as a line of `outcrop import`."""
    seen = datetime.now(UTC).isoformat(timespec="seconds")
    number = rng.randrange(10**6)
    return {
        "id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "validation_status": rng.choice(["valid", "invalid", "unvalidated"]),
        "composite_score": rng.randrange(0, 101),
        "source_type": rng.choice(["repo", "commit", "endpoint"]),
        "source_visibility": "public",
        "source_url": f"https://git.example/acme/r{number % 50}/blob/main/f{number}.env",
        "repo_full_name": f"acme/r{number % 50}",
        "file_path": f"f{number}.env",
        "line_number": 1 + number % 300,
        "matched_text": "AKIA********WXYZ",
        "pattern": {"name": "AWS access key pair", "secret_type": "aws"},
        "first_seen_at": seen,
        "last_seen_at": seen,
    }


@contextmanager
def open_load(folder: Path, seed: int, *, clients: int = 4) -> Iterator[Load]:
    """Start the oracle; it changes nothing before `connect` and `resume`."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = make_certificate(folder, RECEIVER, hours=(-1, 48))
    with (folder / "oracle.log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", str(Path(__file__).with_name("oracle.py"))),
                *("--journal", str(folder / "journal.jsonl"), "--clients", str(clients), "--seed", str(seed)),
                *("--certificate", str(certificate), "--certificate-key", str(key)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    load = Load(process, folder, {})
    try:
        port = load._read()["port"]
        load.environment = {
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": f"{RECEIVER}:443=127.0.0.1:{port}",
            "OUTCROP_EGRESS_CA_FILE": str(certificate),
        }
        yield load
    finally:
        process.kill()
        process.communicate()
