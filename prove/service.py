"""Run the product as its users do: `outcrop serve`, workers and commands, as processes."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

COMMAND = str(Path(sys.executable).with_name("outcrop"))
PATIENCE = 300.0  # seconds for anything that must happen; the machine may be busy

T = TypeVar("T")


def until(probe: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """Call `probe` until it returns something, and return that; `what` names it in the error."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := probe():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"waited {seconds:.0f} s for {what}")


@dataclass(frozen=True)
class Answer:
    """The response to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    base_url: str,
    method: str,
    path: str,
    *,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    seconds: float = 30.0,
    **parameters: Any,
) -> Answer:
    """Send one request on a new connection and return the response. Raise OSError if there is none."""
    address = urlsplit(base_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=seconds)
    query = f"?{urlencode(parameters)}" if parameters else ""
    fields = dict(headers or {}) | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request(method, path + query, body, fields)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()


@dataclass
class Service:
    """The service in a data folder, with the processes that were started."""

    folder: Path
    environment: dict[str, str]
    base_url: str = ""
    process: "subprocess.Popen[str] | None" = None
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    # --- processes

    def popen(
        self, *arguments: str, log: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a command in its own session; its standard error is appended to `log` in the folder."""
        with (self.folder / log).open("a") as file:
            process = subprocess.Popen(
                [COMMAND, *arguments],
                env=self.environment | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=file,
                text=True,
                start_new_session=True,
                cwd=self.folder,  # where a core dump would be written
            )
        self.started.append(process)
        return process

    def serve(self, *arguments: str) -> None:
        """Start the service and wait until it is ready. A second call starts it again on the same port."""
        log = self.folder / "serve.log"
        seen = len(log.read_text()) if log.exists() else 0
        port = urlsplit(self.base_url).port or 0
        self.process = self.popen("serve", "--port", str(port), *arguments, log="serve.log")
        try:
            self.base_url = until(lambda: self._address(log, seen), "the service to start")
            until(self.is_ready, "the service to be ready")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self._describe()}") from None

    def _address(self, log: Path, seen: int) -> str | None:
        """Return the base address that the log names after its first `seen` characters."""
        found = re.search(r'"base_url": "([^"]+)"', log.read_text()[seen:])
        if found is None and self.process is not None and self.process.poll() is not None:
            raise RuntimeError(
                f"serve ended with {self.process.returncode}: {log.read_text()[seen:][-2000:]}"
            )
        return None if found is None else found[1]

    def _describe(self) -> str:
        """Return the ends of the logs and all processes, for the report of a service that does not start."""
        lines = []
        for log in (self.folder / "serve.log", self.data / "postgres" / "log"):
            if log.exists():
                lines += [f"{log.name}:", *log.read_text(errors="replace").splitlines()[-12:]]
        for pid, line in sorted(self.processes().items()):
            with suppress(OSError):
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                lines.append(f"{pid} {state} {line[:120]}")
        return "\n".join(lines)

    def is_ready(self) -> bool:
        """Whether `/readyz` answers 200."""
        with suppress(OSError):
            return request(self.base_url, "GET", "/readyz", seconds=5).status == http.client.OK
        return False

    def readiness(self) -> Answer | None:
        """Return the response of `/readyz`; None if there is none."""
        with suppress(OSError):
            return request(self.base_url, "GET", "/readyz", seconds=5)
        return None

    def worker(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start one more worker."""
        return self.popen("worker", *arguments, log="worker.log", environment=environment)

    def processes(self) -> dict[int, str]:
        """Return id and command line of every process of this folder, also PostgreSQL's and git's."""
        found: dict[int, str] = {}
        mark = str(self.folder).encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    line = (entry / "cmdline").read_bytes()
                    owned = mark in line or mark in (entry / "environ").read_bytes()
                    if owned and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                        found[int(entry.name)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
        return self._with_backends(found)

    def _with_backends(self, found: dict[int, str]) -> dict[int, str]:
        """Add the children of PostgreSQL, which overwrite their command line and environment."""
        parents = {pid for pid, line in found.items() if "postgres" in line}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in found:
                with suppress(OSError, IndexError):
                    if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) in parents:
                        found[int(entry.name)] = (
                            (entry / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace")
                        )
        return found

    def stop(self) -> None:
        """End all processes of the folder: politely at first, then with SIGKILL."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
        for _ in range(50):
            if not (left := self.processes()):
                break
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        for process in self.started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)

    # --- commands and requests

    def run(
        self, *arguments: str, stdin: str = "", codes: tuple[int, ...] = (0,), seconds: float = PATIENCE
    ) -> str:
        """Run a command and return what it printed. Raise if its exit code is not in `codes`."""
        done = subprocess.run(
            [COMMAND, *arguments], env=self.environment, input=stdin, capture_output=True, text=True,
            timeout=seconds, check=False, cwd=self.folder,
        )  # fmt: skip
        if done.returncode not in codes:
            raise RuntimeError(f"outcrop {arguments[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def command(self, *arguments: str, stdin: str = "") -> Any:
        """Run a command with `--json` and return what it printed, parsed."""
        return json.loads(self.run(*arguments, "--json", stdin=stdin))

    def get(self, path: str, key: str, **parameters: Any) -> Answer:
        """Send a GET request to the API."""
        return request(self.base_url, "GET", f"/api/v1{path}", key=key, **parameters)

    def post(self, path: str, key: str, **parameters: Any) -> Answer:
        """Send a POST request to the API."""
        return request(self.base_url, "POST", f"/api/v1{path}", key=key, **parameters)

    def findings(self, key: str, **filters: Any) -> list[dict[str, Any]]:
        """Return all findings of a filtered list, page by page."""
        found: list[dict[str, Any]] = []
        for page in range(1, 10_000):
            answer = self.get(
                "/findings", key, per_page=200, page=page, order_by="first_seen_at", **filters
            ).json
            found += answer["data"]
            if page >= answer["meta"]["pages"]:
                return found
        raise RuntimeError("the list of findings does not end")

    def account(self, slug: str) -> str:
        """Create an account of the enterprise plan; return an API key of it."""
        self.command("account", "create", slug, "--plan", "enterprise", "--email", f"sec@{slug}.example")
        return str(self.command("key", "create", "--account", slug, "--name", "prove")["key"])


@contextmanager
def open_service(folder: Path, **environment: str) -> Iterator[Service]:
    """Return a service on an empty data folder; end all its processes afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OUTCROP_")}
    settings = {
        "OUTCROP_DATA_DIR": str(folder / "data"),
        "OUTCROP_LOG_FORMAT": "json",
        "OUTCROP_RATE_LIMIT_PER_MINUTE": "0",
        "OUTCROP_VALIDATE": "off",
    }
    service = Service(folder, clean | settings | environment)
    try:
        yield service
    finally:
        service.stop()
