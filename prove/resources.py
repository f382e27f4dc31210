"""Take disk, memory and descriptors from the service while its findings change."""

import random
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from prove.kills import kind_of
from prove.load import SLUG, open_load
from prove.namespace import main, run_inside
from prove.service import COMMAND, Service, open_service, until
from prove.trial import Report, Setting

MEGABYTE = 1 << 20
_DISK = "420m"
_DESCRIPTORS = 128


def try_resources(setting: Setting, report: Report) -> None:
    """Run the trial in a mount namespace, so that its small disk is nobody else's."""
    run_inside("mount", "prove.resources", setting, report)


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """Mount a small file system on a folder."""
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_DISK},mode=0700", "tmpfs", str(folder)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _try_inside(setting: Setting, report: Report) -> None:
    """Fill the disk, limit memory, use up descriptors, and make the disk read-only, by turns."""
    folder = setting.folder / "service"
    with (
        open_load(setting.folder / "load", setting.seed) as load,
        _small_disk(folder),
        open_service(folder, **load.environment) as service,
    ):
        rng = setting.random()
        service.serve()
        load.connect(service, rng, findings=200)
        load.resume()
        deadline = setting.deadline()
        while True:
            _fill_disk(service, report)
            _limit_memory(service, rng, report)
            _use_up_descriptors(service, report)
            _make_read_only(service, report)
            report.count("rounds")
            if time.monotonic() > deadline:
                break
        load.verify(service, report)
        checks = service.command("doctor")
        report.check(all(check["ok"] for check in checks), f"doctor says {checks}")


def _fill_disk(service: Service, report: Report) -> None:
    """Fill the disk completely for a while; the service says so, and is ready again afterwards."""
    filler = service.folder / "filler"
    with suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
    until(lambda: _answers(service, "disk_full"), "readyz to say disk_full")
    report.tried += 1
    time.sleep(2)
    filler.unlink()
    until(service.is_ready, "the service to be ready after the disk was full")
    report.tried += 1
    report.count("full disks")


def _answers(service: Service, code: str) -> bool:
    """Whether `/readyz` answers 503 with this code."""
    answer = service.readiness()
    return answer is not None and answer.status == 503 and code.encode() in answer.body


def _make_read_only(service: Service, report: Report) -> None:
    """Start the service on a disk that is read-only: it must say so and end. Then start it as usual."""
    service.stop()
    remount = ["mount", "-o"]
    done = subprocess.run(
        [*remount, "remount,ro", str(service.folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        report.skip(f"a read-only disk: {done.stderr.strip()}")
    else:
        try:
            for arguments in (("serve", "--port", "0"), ("key", "list", "--account", SLUG)):
                message = _refusal(service, *arguments)
                is_clear = message.startswith("outcrop: ") and len(message.splitlines()) == 1
                report.check(is_clear, f"{arguments[0]} on a read-only disk: {message[-500:]}")
        finally:
            subprocess.run([*remount, "remount,rw", str(service.folder)], check=True)
        report.count("read-only disks")
    service.serve()


def _refusal(service: Service, *arguments: str) -> str:
    """Return what a command wrote to standard error; it must end with 2, within a minute."""
    done = subprocess.run(
        [COMMAND, *arguments],
        env=service.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr if done.returncode == 2 else f"ended with {done.returncode}: {done.stderr}"


def _limit_memory(service: Service, rng: random.Random, report: Report) -> None:
    """Let no process have much more memory than now, for a while; accepted work is done later."""
    kinds = {pid: kind_of(line) for pid, line in service.processes().items()}
    limits: dict[int, tuple[int, int]] = {}
    try:
        for pid in (pid for pid, kind in kinds.items() if kind in {"api", "worker", "scanner"}):
            with suppress(OSError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
                limits[pid] = resource.prlimit(pid, resource.RLIMIT_AS)
                most = pages * resource.getpagesize() + rng.choice([0, 1, 8, 64]) * MEGABYTE
                resource.prlimit(pid, resource.RLIMIT_AS, (most, limits[pid][1]))
        time.sleep(rng.uniform(2, 6))
    finally:
        for pid, limit in limits.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_AS, limit)
    until(service.is_ready, "the service to be ready after its memory was limited")
    report.tried += 1
    report.count("memory limits")


def _use_up_descriptors(service: Service, report: Report) -> None:
    """Lower the limit of descriptors of the API processes and open as many connections."""
    pids = [pid for pid, line in service.processes().items() if kind_of(line) == "api"]
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids}
    address = urlsplit(service.base_url)
    sockets: list[socket.socket] = []
    try:
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_DESCRIPTORS, limits[pid][1]))
        for _ in range(2 * _DESCRIPTORS):
            with suppress(OSError):
                sockets.append(socket.create_connection((address.hostname or "", address.port or 0), 2))
        began = time.monotonic()
        until(service.is_ready, "an answer while idle connections use up the descriptors")
        report.check(time.monotonic() - began < 60, "an answer took more than a minute")
    finally:
        for connection in sockets:
            connection.close()
        for pid, limit in limits.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    until(service.is_ready, "the service to be ready after its descriptors were used up")
    report.count("times without descriptors")


if __name__ == "__main__":
    main(_try_inside)
