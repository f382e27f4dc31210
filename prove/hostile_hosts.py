"""Hosts that attack: receivers, issuers, sites, code hosts and git hosts, each with every kind of bad answer.

They run on a public address of a network namespace in which every address is local.
"""

import asyncio
import random
import resource
import ssl
import threading
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from prove.service import Service
from prove.trial import Report, Setting
from tests.support import hostile
from tests.support.hostile import Behaviour, answers
from tests.support.rulesets import github_token
from tests.support.tls import make_certificate

ADDRESS = "93.184.215.14"
_ISSUER = "api.github.com"
_AT_ONCE = 3
# Every command ends in this time: a site may take 60 s for one response, and is asked for a few.
_SECONDS = 300.0
_MEMORY = 1_400 << 10  # kB of one process; a scan of a source may use 1,400 MB
_ROLES = ("receiver", "issuer", "site", "code host", "git host")
# Where the redirects lead that no host may lead to.
_INSIDE = ("https://10.0.0.1/", "http://169.254.169.254/latest/meta-data/", "https://127.0.0.1:5432/")


def _redirect(to: str, status: int = 302) -> Behaviour:
    return answers(f"HTTP/1.1 {status} Go\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode())


def _json(body: str, headers: str = "") -> Behaviour:
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}"
    return answers(f"HTTP/1.1 200 OK\r\n{length}\r\n{body}".encode())


async def _endless_redirects(_: StreamReader, writer: StreamWriter) -> None:
    """Lead to another address of the same host, every time."""
    path = f"/{random.getrandbits(64)}"
    writer.write(f"HTTP/1.1 302 Go\r\nLocation: {path}\r\nContent-Length: 0\r\n\r\n".encode())


async def _endless_pages(_: StreamReader, writer: StreamWriter) -> None:
    """Answer with an empty list that has a next page, every time; a site gets links to more pages."""
    links = "".join(f'<a href="/{random.getrandbits(64)}">more</a>' for _ in range(200))
    link = f'Link: </{random.getrandbits(64)}>; rel="next"\r\n'
    writer.write(f"HTTP/1.1 200 OK\r\n{link}Content-Length: {len(links)}\r\n\r\n{links}".encode())


_NESTED = "[" * 100_000 + "]" * 100_000
BEHAVIOURS: dict[str, Behaviour] = {
    **{f"redirect-{number}": _redirect(to) for number, to in enumerate(_INSIDE)},
    "redirect-kept-method": _redirect(_INSIDE[0], 307),
    "next-page-inside": _json("[]", f'Link: <{_INSIDE[0]}>; rel="next"\r\n'),
    "clone-inside": _json(
        '[{"id": 1, "full_name": "acme/shop", "clone_url": "https://10.0.0.1/acme/shop.git",'
        ' "html_url": "https://10.0.0.1/acme/shop", "private": false, "fork": false, "archived": false}]'
    ),
    "nested-json": _json(_NESTED),
    "endless-redirects": _endless_redirects,
    "endless-pages": _endless_pages,
    "never-answers": hostile.never_answers,
    "one-byte-a-second": hostile.one_byte_a_second,
    "endless-headers": hostile.endless_headers,
    "endless-body": hostile.endless_body,
    "endless-chunks": hostile.endless_chunks,
    "interim-flood": hostile.interim_flood,
    "gzip-bomb": hostile.gzip_bomb,
    "reset": hostile.reset,
    "half-close": hostile.half_close,
    "http-0-9": answers(b"<p>Hello</p>\n"),
}
_QUICK = ("redirect-0", "next-page-inside", "gzip-bomb", "reset")


@contextmanager
def _serve(folder: Path) -> Iterator[tuple[dict[str, int], Path]]:
    """Serve every behaviour on a port of its own; yield the ports, and the certificate to trust."""
    folder.mkdir()
    certificate, key = make_certificate(folder, _ISSUER, *(f"{name}.example" for name in BEHAVIOURS))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start(behave: Behaviour) -> int:
        async def accept(reader: StreamReader, writer: StreamWriter) -> None:
            with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await reader.readuntil(b"\r\n\r\n")
                await behave(reader, writer)
                await writer.drain()
            with suppress(OSError, ssl.SSLError):
                writer.close()

        server = await asyncio.start_server(accept, ADDRESS, 0, ssl=context)
        return int(server.sockets[0].getsockname()[1])

    ports = {
        name: asyncio.run_coroutine_threadsafe(start(behave), loop).result()
        for name, behave in BEHAVIOURS.items()
    }
    try:
        yield ports, certificate
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def try_hosts(setting: Setting, report: Report, service: Service) -> None:
    """Use each role's host with each behaviour, in random order, until the time is over."""
    rng = setting.random()
    pairs = [(role, name) for role in _ROLES for name in (_QUICK if setting.short else BEHAVIOURS)]
    rng.shuffle(pairs)
    deadline = setting.deadline()
    with _serve(setting.folder / "hosts") as (ports, certificate), ThreadPoolExecutor(_AT_ONCE) as pool:
        names = [f"{name}.example:443={ADDRESS}:{port}" for name, port in ports.items()]
        used = replace(
            service,
            environment=service.environment
            | {
                "OUTCROP_EGRESS_CONNECT_TO": ",".join(names),
                "OUTCROP_EGRESS_CA_FILE": str(certificate),
                "OUTCROP_MAX_SOURCE_SECONDS": "60",
            },
        )

        def try_pair(pair: tuple[str, str]) -> None:
            if time.monotonic() < deadline:
                _try_host(used, *pair, ports, setting.folder, report)

        list(pool.map(try_pair, pairs[: len(_ROLES)] if setting.short else pairs))
    used_kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    report.check(used_kilobytes < _MEMORY, f"a process has used {used_kilobytes:,} kB of memory")
    report.counts["most memory of a process in MB"] = used_kilobytes >> 10


def _try_host(
    service: Service, role: str, name: str, ports: dict[str, int], folder: Path, report: Report
) -> None:
    """Let the product use one hostile host; it must end in time, without a traceback."""
    connect_to = service.environment["OUTCROP_EGRESS_CONNECT_TO"]
    command: tuple[str, ...] = ("scan", f"https://{name}.example/", "--no-validate")
    if role == "git host":
        command = ("scan", f"https://{name}.example/acme/shop.git", "--no-validate")
    elif role == "code host":
        service = replace(
            service,
            environment=service.environment | {"OUTCROP_GITHUB_API_URL": f"https://{name}.example"},
        )
        command = ("scan", "github:acme", "--no-validate")
    elif role == "issuer":
        issuer = f"{connect_to},{_ISSUER}:443={ADDRESS}:{ports[name]}"
        service = replace(service, environment=service.environment | {"OUTCROP_EGRESS_CONNECT_TO": issuer})
        leak = folder / f"issuer-{name}"
        leak.mkdir()
        (leak / "a.env").write_text(f"token = {github_token(name)}\n")
        command = ("scan", str(leak))
    elif role == "receiver":
        slug = f"receiver-{name}"
        service.run("account", "create", slug, "--plan", "enterprise", "--email", f"sec@{name}.example")
        service.run("webhook", "set", "--account", slug, f"https://{name}.example/in")
        command = ("webhook", "test", "--account", slug)
    try:
        output = service.run(*command, codes=(0, 1, 2), seconds=_SECONDS)
    except Exception as error:  # noqa: BLE001 - a hang, or another exit code: both are a failure here
        report.check(holds=False, failure=f"{role} {name}: {error}")
        return
    report.check("Traceback" not in output, f"{role} {name}: {output[-500:]}")
    report.count("hostile hosts")
