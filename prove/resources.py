"""Take disk and descriptors from the service while its findings change."""

import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from prove.kills import kind_of
from prove.load import open_load
from prove.namespace import main, run_inside
from prove.service import Service, open_service, until
from prove.trial import Report, Setting

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
    """Fill the disk, make it read-only, and use up descriptors, by turns."""
    folder = setting.folder / "service"
    with (
        open_load(setting.folder / "load", setting.seed) as load,
        _small_disk(folder),
        open_service(folder, **load.environment) as service,
    ):
        service.serve()
        load.connect(service, setting.random(), findings=200)
        load.resume()
        deadline = setting.deadline()
        while True:
            _fill_disk(service, report)
            _make_read_only(service, report)
            _use_up_descriptors(service, report)
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
    """Make the disk read-only for a while."""
    mount = ["mount", "-o"]
    done = subprocess.run([*mount, "remount,ro", str(service.folder)], capture_output=True, check=False)
    if done.returncode:  # a file is open for writing
        report.skip("a read-only disk: the file system is in use and cannot be remounted")
        return
    try:
        until(lambda: not service.is_ready(), "the service to notice that its disk is read-only")
    finally:
        subprocess.run([*mount, "remount,rw", str(service.folder)], check=True)
    until(service.is_ready, "the service to be ready after the disk was read-only")
    report.tried += 2
    report.count("read-only disks")


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
