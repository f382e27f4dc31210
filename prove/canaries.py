"""Plant 200 made-up credentials, use the whole product, and look for them everywhere."""

import base64
import json
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prove.portal_session import sign_in
from prove.repositories import DEFAULT, Repository
from prove.service import Service, open_service
from prove.trial import Report, Setting
from tests.support.deliveries import HOST, receiver
from tests.support.factories import make_line
from tests.support.git_host import git_host
from tests.support.github_host import merge_egress
from tests.support.rulesets import github_token

PLANTED = 200
_SLUG = "canaries"
_ADDRESS = "https://git.example/planted.git"


def try_canaries(setting: Setting, report: Report) -> None:
    """Plant credentials in a repository, in reports and in typed text; search all that the service writes."""
    rng = setting.random()
    tokens = [github_token(f"canary {setting.seed} {number}") for number in range(PLANTED)]
    in_files, in_reports, typed = tokens[:100], tokens[100:180], tokens[180:]
    root, tls, hooks_folder = (setting.folder / name for name in ("repositories", "tls", "hooks"))
    tls.mkdir(parents=True)
    hooks_folder.mkdir()
    with git_host(root, tls, hours=(-1, 48)) as host, receiver(hooks_folder) as hooks:
        egress = merge_egress(setting.folder, host.egress, hooks.egress)
        environment = {
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": f"git.example:443=127.0.0.1:{host.port},"
            f"{HOST}:443=127.0.0.1:{hooks.port}",
            "OUTCROP_EGRESS_CA_FILE": str(egress.ca_file),
            "TMPDIR": str(setting.folder / "tmp"),
            "XDG_CACHE_HOME": str(setting.folder / "cache"),
        }
        (setting.folder / "tmp").mkdir()
        repository = Repository(root / "planted.git", rng)
        files = {f"config/{n}.env": f"token = {token}\n".encode() for n, token in enumerate(in_files)}
        repository.commit(DEFAULT, files)
        with (
            _core_dumps_wanted(),
            open_service(setting.folder / "service", **environment) as service,
            _watching() as arguments,
        ):
            texts: dict[str, bytes | None] = dict(_use_everything(service, in_reports, typed, setting.folder))
            texts |= {f"delivery {n}": request.body for n, request in enumerate(hooks.requests)}
            found = service.findings(_key_of(setting.folder))
            report.check(len(found) >= len(in_files) + len(in_reports), f"only {len(found)} were found")
            report.count("findings", len(found))
            texts |= {f"arguments of a process: {line[:60]!r}": line for line in arguments}
            _crash(service, report)
            service.stop()
            for folder in (service.folder, setting.folder / "tmp", setting.folder / "cache"):
                texts |= {f"file {path.relative_to(setting.folder)}": None for path in _files(folder)}
        _search(texts, tokens, setting.folder, report)


@contextmanager
def _core_dumps_wanted() -> Iterator[None]:
    """Let the processes that are started meanwhile write core dumps, as far as they do not refuse to."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    most = resource.RLIM_INFINITY if os.geteuid() == 0 else before[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before if os.geteuid() == 0 else (before[0], most))


def _crash(service: Service, report: Report) -> None:
    """Let processes crash in the middle of their work; no dump of their memory may be written."""
    scan = service.popen("scan", "--account", _SLUG, _ADDRESS, log="scan.log")
    time.sleep(2)
    processes = {pid: line for pid, line in service.processes().items() if "postgres" not in line}
    for pid, line in processes.items():
        with suppress(OSError):
            limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
            (core,) = [row.split()[4] for row in limits if row.startswith("Max core file size")]
            report.check(core == "0", f"core dumps are enabled in {line[:80]}")
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGABRT)
    scan.wait(60)
    report.count("crashed processes", len(processes))
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if "/" in pattern or pattern.startswith("|"):
        report.skip(f"core dumps: the kernel writes them elsewhere ({pattern[:40]})")


def _key_of(folder: Path) -> str:
    return (folder / "key").read_text()


class _watching:  # noqa: N801 - used as a context manager
    """Collects the command lines of all processes of the machine until the block ends."""

    def __init__(self) -> None:
        self.lines: set[bytes] = set()
        self._ended = threading.Event()

    def __enter__(self) -> set[bytes]:
        threading.Thread(target=self._watch, daemon=True).start()
        return self.lines

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            for entry in os.listdir("/proc"):  # noqa: PTH208
                if entry.isdigit():
                    with suppress(OSError):
                        self.lines.add(Path(f"/proc/{entry}/cmdline").read_bytes())


def _use_everything(
    service: Service, in_reports: list[str], typed: list[str], folder: Path
) -> Iterator[tuple[str, bytes]]:
    """Scan, import, type, list, export and back up; yield name and bytes of everything that comes out."""
    service.serve()
    key = service.account(_SLUG)
    (folder / "key").write_text(key)
    service.command("webhook", "set", "--account", _SLUG, f"https://{HOST}/in")
    address = _ADDRESS
    yield "scan", service.run("scan", "--account", _SLUG, address, "--format", "json", codes=(0, 1)).encode()
    yield (
        "local scan",
        service.run("scan", address, "--no-validate", "--format", "json", codes=(0, 1)).encode(),
    )
    lines = [
        make_line(secret=token, file_path=f"r{n}.env", matched_text=None)
        for n, token in enumerate(in_reports)
    ]
    service.command(
        "import", "--account", _SLUG, "-", stdin="".join(json.dumps(line) + "\n" for line in lines)
    )
    findings = service.findings(key)
    for finding, token in zip(findings, typed, strict=False):
        yield (
            "resolve",
            service.post(f"/findings/{finding['id']}/resolve", key, note=f"was {token} until now").body,
        )
    for path in (
        "/findings?per_page=200",
        "/scans",
        f"/findings/{findings[0]['id']}",
        f"/findings/{findings[0]['id']}/score",
    ):
        yield f"GET {path}", service.get(path, key).body
    owner = sign_in(service, _SLUG, "owner")
    for token in typed[:5]:
        yield "view", owner.post("/views", {"name": token, "view": "status=active"}).content
    pages, _ = owner.crawl()
    for path, page in pages.items():
        yield f"page {path}", page.encode()
    for format_ in ("jsonl", "csv", "sarif"):
        yield f"export {format_}", service.run("export", "--account", _SLUG, "--format", format_).encode()
    yield "audit", service.run("audit", "--account", _SLUG, "--json").encode()
    service.run("backup", str(service.folder / "backup.outcrop"))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _search(texts: dict[str, bytes | None], tokens: list[str], folder: Path, report: Report) -> None:
    """Look for every token in every text, as it is and as base64 and hex text."""
    forms: dict[bytes, str] = {}
    for token in tokens:
        raw = token.encode()
        for name, form in (
            ("raw", raw),
            ("hex", raw.hex().encode()),
            *(("base64", f) for f in _base64_forms(raw)),
        ):
            forms[form] = f"{name} of {token[:4]}…"
    for name, text in texts.items():
        content = (folder / name.removeprefix("file ")).read_bytes() if text is None else text
        leaked = sorted({what for form, what in forms.items() if form in content})
        report.check(not leaked, f"{name} has {leaked[:3]}")
    report.count("places searched", len(texts))


def _base64_forms(raw: bytes) -> list[bytes]:
    """Return what base64 text contains if it holds `raw` at any offset, without the ends that vary."""
    return [
        base64.b64encode(bytes(shift) + raw)[4 : -4 if (len(raw) + shift) % 3 else None][:40]
        for shift in range(3)
    ]
