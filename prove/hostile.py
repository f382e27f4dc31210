"""Repositories and addresses that attack, in a network namespace in which every address is local.

A listener answers on every address there: a connection to one that is not public is a failure.
"""

import ipaddress
import random
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from prove.hostile_hosts import try_hosts
from prove.namespace import main, run_inside
from prove.repositories import DEFAULT, Repository
from prove.service import Service, open_service, until
from prove.trial import NotTriedError, Report, Setting

_PORTS = (22, 80, 443, 3306, 5432, 6379, 8080, 27017)
_SLUG = "hostile"
_PUBLIC = "93.184.215.14"
# Addresses that no outsider may make the service connect to, as they may be written.
_ADDRESSES = (
    *(
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "[::]",
    ),
    *(
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
    ),
    *("[::ffff:10.0.0.1]", "[::127.0.0.1]", "[64:ff9b::a00:1]", "[2002:a00:1::]", "[fe80::1]", "[fd00::1]"),
    *("224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "240.0.0.1", "2852039166", "0xa9fea9fe"),
)

# Settings of git that name a program.
_PROGRAM_SETTINGS = (
    *("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.gitProxy", "core.askPass"),
    *("diff.external", "diff.x.textconv", "diff.x.command", "filter.x.clean", "filter.x.smudge"),
    *("filter.x.process", "gpg.program", "uploadpack.packObjectsHook", "remote.origin.uploadpack"),
)


def try_hostile(setting: Setting, report: Report) -> None:
    """Run the trial in a network namespace."""
    if shutil.which("ip") is None:
        raise NotTriedError("the command `ip` is not installed (Debian: iproute2)")
    run_inside("net", "prove.hostile", setting, report)


class Listener:
    """Accepts connections on all addresses of the namespace, and keeps the address that was asked for."""

    def __init__(self) -> None:
        self.connections: list[tuple[str, int]] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            for port in _PORTS:
                with suppress(OSError):
                    server = socket.socket(family)
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    server.bind(("", port))
                    server.listen()
                    threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            client, _ = server.accept()
            self.connections.append(client.getsockname()[:2])
            client.close()

    def forbidden(self) -> set[tuple[str, int]]:
        """Return the connections to addresses that are not public."""
        return {(host, port) for host, port in self.connections if not ipaddress.ip_address(host).is_global}


def _try_inside(setting: Setting, report: Report) -> None:
    """Attack by each way; afterwards nothing may have been executed or connected to."""
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo"],
    ):
        subprocess.run(command, check=True)
    subprocess.run(
        ["ip", "-6", "route", "add", "local", "::/0", "dev", "lo"], check=False, capture_output=True
    )
    listener, rng = Listener(), setting.random()
    socket.create_connection((_PUBLIC, 443), 5).close()
    until(lambda: (_PUBLIC, 443) in listener.connections, "the listener to see a connection")
    with open_service(setting.folder / "service", OUTCROP_VALIDATE="full") as service:
        addresses = rng.sample(_ADDRESSES, 6) if setting.short else list(_ADDRESSES)
        service.run("migrate")
        service.account(_SLUG)
        began = time.monotonic()
        for address in addresses:
            service.run("webhook", "set", "--account", _SLUG, f"https://{address}/in", codes=(0, 2))
            service.run("webhook", "test", "--account", _SLUG, codes=(0, 1, 2))
            for url in (f"https://{address}/acme/shop.git", f"https://{address}/"):
                service.run("scan", url, "--no-validate", codes=(0, 1, 2))
            report.count("addresses")
        folder = setting.folder / "strings"
        folder.mkdir()
        (folder / "a.env").write_text("".join(_connection_strings(addresses, rng)))
        service.run("scan", str(folder), codes=(0, 1, 2))
        report.check(time.monotonic() - began < 60 * len(addresses), "refusing addresses took too long")
        forbidden = listener.forbidden()
        report.tried += len(addresses)
        report.check(not forbidden, f"connections to {sorted(forbidden)}")
        _try_repositories(setting, report, service)
        report.check(listener.forbidden() == forbidden, "a repository made the service connect")
        try_hosts(setting, report, service)
        forbidden = listener.forbidden() - forbidden
        report.check(not forbidden, f"hosts made the service connect to {sorted(forbidden)}")


def _connection_strings(addresses: list[str], rng: random.Random) -> list[str]:
    """Return connection strings with every address: each is asked with `full` validation."""
    schemes = ("postgres", "mysql", "redis", "mongodb", "amqp", "https")
    return [
        f"{scheme.upper()}_{n}_URL={scheme}://app:{_password(rng)}@{address}/db\n"
        for n, address in enumerate(addresses)
        for scheme in schemes
    ]


def _password(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghjkmnpqrstuvwxyz23456789", k=20))


def _try_repositories(setting: Setting, report: Report, service: Service) -> None:
    """Scan local repositories whose configuration, hooks and attributes name programs."""
    executed = setting.folder / "executed"
    program = setting.folder / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> {executed}\nexit 0\n')
    program.chmod(0o755)
    repository = Repository(setting.folder / "hostile.git", setting.random())
    repository.commit(
        DEFAULT, {".gitattributes": b"* filter=x diff=x merge=x\n", ".gitmodules": _submodule(program)}
    )
    path = repository.add_token()
    for name in _PROGRAM_SETTINGS:
        repository.git("config", name, str(program))
    for name in ("credential.helper", "alias.log", "alias.cat-file"):
        repository.git("config", name, f"!{program}")
    for name, value in {
        "core.hooksPath": str(setting.folder / "hooks"),
        "remote.origin.url": f"ext::{program}",
        "remote.origin.promisor": "true",
        "extensions.partialClone": "origin",
    }.items():
        repository.git("config", name, value)
    for folder in (repository.folder / "hooks", setting.folder / "hooks"):
        folder.mkdir(exist_ok=True)
        for hook in (
            "post-checkout",
            "pre-push",
            "post-index-change",
            "reference-transaction",
            "fsmonitor-watchman",
        ):
            (folder / hook).write_text(program.read_text())
            (folder / hook).chmod(0o755)
    clone = setting.folder / "clone"
    shutil.copytree(repository.folder, clone / ".git")
    configuration = clone / ".git/config"
    configuration.write_text(configuration.read_text().replace("bare = true", "bare = false"))
    (clone / ".env").write_text(f"OUTCROP_POSTGRES_BIN={setting.folder}\n")
    for target in (repository.folder, clone):
        output = service.run("scan", str(target), "--no-validate", "--format", "json", codes=(0, 1, 2))
        report.check(path in output, f"the token of {target.name} is not found")
        report.check(not executed.exists(), f"executed: {executed.read_text() if executed.exists() else ''}")
        report.count("repositories")


def _submodule(program: Path) -> bytes:
    return f'[submodule "x"]\n\tpath = x\n\turl = ext::{program}\n\tupdate = !{program}\n'.encode()


if __name__ == "__main__":
    main(_try_inside)
