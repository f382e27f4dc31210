"""Start the service for a benchmark, and run commands of `outcrop` on it."""

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTCROP = str(Path(sys.executable).with_name("outcrop"))


@dataclass
class Service:
    """A running service on a database of its own."""

    work: Path
    environment: dict[str, str]
    base_url: str
    keys: dict[str, str] = field(default_factory=dict)

    def outcrop(self, *arguments: str) -> Any:
        """Run an `outcrop` command and return its JSON output."""
        completed = subprocess.run(
            [OUTCROP, *arguments], env=self.environment, capture_output=True, check=False
        )
        if completed.returncode:
            raise SystemExit(f"outcrop {' '.join(arguments)}: {completed.stderr.decode()[-1000:]}")
        return json.loads(completed.stdout)

    def create_account(self, slug: str) -> None:
        """Create an account with an API key."""
        self.outcrop(
            "account", "create", slug, "--plan", "enterprise", "--email", f"{slug}@example.com", "--json"
        )
        self.keys[slug] = self.outcrop("key", "create", "--account", slug, "--name", "bench", "--json")["key"]

    def list_runs(self, slug: str) -> list[dict[str, Any]]:
        """Return the runs of an account from the API, the newest first."""
        request = urllib.request.Request(
            f"{self.base_url}/api/v1/scans", headers={"Authorization": f"Bearer {self.keys[slug]}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return list(json.load(response)["data"])


@contextmanager
def run_service(work: Path, hosts: dict[str, str]) -> Iterator[Service]:
    """Serve the API on a new database, without a worker: the benchmark starts the workers itself."""
    shutil.rmtree(work / "data", ignore_errors=True)
    own = {
        "OUTCROP_DATA_DIR": str(work / "data"),
        "XDG_CACHE_HOME": str(work / "cache"),
        "OUTCROP_LOG_FORMAT": "json",
    }
    own["OUTCROP_VALIDATE"] = "off"  # send no requests to issuers
    environment = os.environ | hosts | own
    with subprocess.Popen(
        [OUTCROP, "serve", "--port", "0", "--no-worker"], env=environment, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if b'"serving"' in line:
                    threading.Thread(
                        target=process.stderr.read, daemon=True
                    ).start()  # otherwise a full pipe would block the service
                    yield Service(work, environment, json.loads(line)["base_url"])
                    return
            raise SystemExit("the service did not start")
        finally:
            process.terminate()
            process.wait()
