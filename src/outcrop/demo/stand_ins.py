"""All services outside of Outcrop, on one local port: code host, web site, issuers and receiver."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from aiohttp import web

from outcrop.demo import code_host, receiver, repositories, site
from outcrop.demo.certificates import CertificateFiles, write_certificates
from outcrop.demo.code_host import ExampleCodeHost
from outcrop.demo.history import publish, push
from outcrop.demo.issuers import IssuerRequest, Issuers
from outcrop.demo.planted import planted_in
from outcrop.demo.receiver import Receiver

SITE = "www.acme.example"
GONE = "git.partner.example"  # a code host that is down
TOKEN = "made-up-token-of-the-demo"  # noqa: S105 - the stand-in accepts any token
_SERVER = "stand-in of the Outcrop demo"
_NOTICE = "Demo: every credential is made up, and stand-ins on this machine answer for the issuers."


@dataclass
class StandIns:
    """The stand-ins and their state. `later`: the changes between first and second scans have happened."""

    code: ExampleCodeHost
    issuers: Issuers
    receiver: Receiver
    certificates: CertificateFiles
    later: bool = True
    port: int = 0
    _pages: dict[bool, dict[str, site.SiteResponse]] = field(
        default_factory=lambda: {later: site.pages(later=later) for later in (False, True)}
    )

    @property
    def hosts(self) -> list[str]:
        return sorted(self.issuers.hosts | {code_host.HOST, SITE, GONE, receiver.HOST})

    @property
    def environment(self) -> dict[str, str]:
        """Return settings with which the service connects to the stand-ins and to nothing else."""
        return {
            "OUTCROP_EGRESS_CLOSED": "true",
            "OUTCROP_EGRESS_CONNECT_TO": ",".join(f"{host}:443=127.0.0.1:{self.port}" for host in self.hosts),
            "OUTCROP_EGRESS_CA_FILE": str(self.certificates.authority),
            "OUTCROP_EGRESS_SOURCE": "127.0.0.1",
            "OUTCROP_EGRESS_PROXY": "",  # never the operator's proxy
            "OUTCROP_EGRESS_PROXY_FILE": "",
            "OUTCROP_GITHUB_API_URL": code_host.API_URL,
            "OUTCROP_GITHUB_TOKEN": TOKEN,  # never the operator's own token
            "OUTCROP_VALIDATE": "safe",
            "OUTCROP_STALE_AFTER_DAYS": "30",
            "OUTCROP_NOTICE": _NOTICE,
        }

    def publish(self, now: datetime, *, later: bool) -> None:
        """Write the repositories and switch the site to the first or the later state."""
        for repository in (*repositories.REPOSITORIES, repositories.NOTES):
            publish(repository, self.code.folder_of(repository), now, later=later)
        self.later = later

    def push(self, now: datetime) -> None:
        """Push a commit with a credential to the mobile app."""
        push(repositories.MOBILE, self.code.folder_of(repositories.MOBILE), now)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request to any of the hosts."""
        response = await self._dispatch(request)
        response.headers["Server"] = _SERVER
        return response

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request by its host name."""
        match request.host.partition(":")[0]:
            case code_host.HOST:
                return await self.code.answer(request)
            case receiver.HOST:
                return web.Response(status=self.receiver.receive(await request.read(), request.headers))
            case name if name == SITE:
                served = self._pages[self.later].get(request.path)
                if served is None:
                    return web.Response(status=404, text="not found", content_type="text/html")
                return web.Response(
                    status=served.status,
                    body=served.body.encode(),
                    headers={"Content-Type": served.media_type},
                )
            case name if name == GONE:
                return web.Response(status=503, text="unavailable")
            case host:
                response = self.issuers.answer(
                    IssuerRequest(
                        host, request.path, request.query_string, request.headers, await request.read()
                    )
                )
                if response.down and request.transport is not None:
                    request.transport.abort()
                return web.Response(
                    status=response.status, headers=dict(response.headers), body=response.body
                )


@asynccontextmanager
async def open_stand_ins(folder: Path, now: datetime, show: Callable[[str], None]) -> AsyncIterator[StandIns]:
    """Run the stand-ins on a free loopback port until the block ends."""
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    issuers = Issuers(planted_in([*repositories.templates(), *site.templates()]))
    names = sorted(issuers.hosts | {code_host.HOST, SITE, GONE, receiver.HOST})
    stand_ins = StandIns(
        ExampleCodeHost(folder / "repositories"),
        issuers,
        Receiver(show),
        write_certificates(folder, names, now),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stand_ins.certificates.certificate, stand_ins.certificates.key)
    runner = web.ServerRunner(web.Server(stand_ins.answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        stand_ins.port = runner.addresses[0][1]
        yield stand_ins
    finally:
        await runner.cleanup()
