"""Everything that is outside of the service, on one port of this machine: the code host, the web site, the issuers and the receiver."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from aiohttp import web

from outcrop.demo import code_host, receiver, repositories, site
from outcrop.demo.certificates import Papers, make_papers
from outcrop.demo.code_host import CodeHost
from outcrop.demo.history import publish
from outcrop.demo.issuers import Issuers, Question
from outcrop.demo.planted import planted_in
from outcrop.demo.receiver import Receiver

SITE = "www.acme.example"
GONE = "git.partner.example"  # a code host that has been away for weeks
TOKEN = "made-up-token-of-the-demo"  # noqa: S105 - the stand-in takes any
_SERVER = "stand-in of the Outcrop demo"
_NOTICE = "Demo: every credential is made up, and stand-ins on this machine answer for the issuers."


@dataclass
class StandIns:
    code: CodeHost
    issuers: Issuers
    receiver: Receiver
    papers: Papers
    later: bool = True  # what happens between the first scans and the second has happened
    port: int = 0
    _pages: dict[bool, dict[str, site.Served]] = field(
        default_factory=lambda: {later: site.pages(later=later) for later in (False, True)}
    )

    @property
    def hosts(self) -> list[str]:
        return sorted(self.issuers.hosts | {code_host.HOST, SITE, GONE, receiver.HOST})

    @property
    def environment(self) -> dict[str, str]:
        """Give the settings with which the service reaches the stand-ins and nothing else."""
        return {
            "OUTCROP_EGRESS_CLOSED": "true",
            "OUTCROP_EGRESS_CONNECT_TO": ",".join(f"{host}:443=127.0.0.1:{self.port}" for host in self.hosts),
            "OUTCROP_EGRESS_CA_FILE": str(self.papers.authority),
            "OUTCROP_EGRESS_SOURCE": "127.0.0.1",
            "OUTCROP_GITHUB_API_URL": code_host.API_URL,
            "OUTCROP_GITHUB_TOKEN": TOKEN,  # not the operator's own
            "OUTCROP_VALIDATE": "safe",
            "OUTCROP_STALE_AFTER_DAYS": "30",
            "OUTCROP_NOTICE": _NOTICE,
        }

    def publish(self, now: datetime, *, later: bool) -> None:
        """Let the example be as the first scans see it, or as it is later."""
        for one in (*repositories.REPOSITORIES, repositories.NOTES):
            publish(one, self.code.place(one), now, later=later)
        self.later = later

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._answer(request)
        response.headers["Server"] = _SERVER
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.host.partition(":")[0]:
            case code_host.HOST:
                return await self.code.answer(request)
            case receiver.HOST:
                return web.Response(status=self.receiver.receive(await request.read(), request.headers))
            case name if name == SITE:
                served = self._pages[self.later].get(request.path)
                if served is None:
                    return web.Response(status=404, text="not here", content_type="text/html")
                return web.Response(
                    status=served.status,
                    body=served.body.encode(),
                    headers={"Content-Type": served.media_type},
                )
            case name if name == GONE:
                return web.Response(status=503, text="away")
            case host:
                said = self.issuers.answer(
                    Question(host, request.path, request.query_string, request.headers, await request.read())
                )
                if said.down and request.transport is not None:
                    request.transport.abort()
                return web.Response(status=said.status, headers=dict(said.headers), body=said.body)


@asynccontextmanager
async def open_stand_ins(folder: Path, now: datetime, show: Callable[[str], None]) -> AsyncIterator[StandIns]:
    """Run the stand-ins on a free port of loopback until the block ends."""
    await asyncio.to_thread(folder.mkdir, mode=0o700, parents=True, exist_ok=True)
    issuers = Issuers(planted_in([*repositories.templates(), *site.templates()]))
    names = sorted(issuers.hosts | {code_host.HOST, SITE, GONE, receiver.HOST})
    made = StandIns(
        CodeHost(folder / "repositories"), issuers, Receiver(show), make_papers(folder, names, now)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.papers.certificate, made.papers.key)
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        made.port = runner.addresses[0][1]
        yield made
    finally:
        await runner.cleanup()
