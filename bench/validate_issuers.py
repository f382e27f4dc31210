"""The issuers that the validation benchmark asks, in a process of their own: one port behind TLS that answers for every name.

python -m bench.validate_issuers FOLDER ISSUERS DELAY prints where it listens as one line of JSON; when its standard input ends it prints
what each issuer saw, as another.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path

from tests.support.tls import make_certificate

_BODY = b'{"id": 1, "scopes": ["read", "write"]}'
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(_BODY),
    _BODY,
)


class Answering(asyncio.Protocol):
    """As little as can be asked, so that the other side is what is measured."""

    def __init__(self, seen: dict[str, list[float]], delay: float) -> None:
        self.seen = seen
        self.delay = delay
        self.unread = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.unread += data
        while b"\r\n\r\n" in self.unread:
            head, _, self.unread = self.unread.partition(b"\r\n\r\n")
            host = (
                next(line for line in head.split(b"\r\n") if line.lower().startswith(b"host:"))[5:]
                .strip()
                .decode()
            )
            self.seen.setdefault(host, []).append(time.monotonic())
            asyncio.get_running_loop().call_later(self.delay, self.answer)

    def answer(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(_ANSWER)


def most_in_a_second(times: list[float]) -> int:
    """Give the most requests in any sliding second."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= 1.0:
            first += 1
        most = max(most, last - first + 1)
    return most


async def main() -> None:
    folder, issuers, delay = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    hosts = [f"api.issuer{number}.example" for number in range(issuers)]
    cert, key = make_certificate(folder, *hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    seen: dict[str, list[float]] = {}
    server = await asyncio.get_running_loop().create_server(
        lambda: Answering(seen, delay), "127.0.0.1", 0, ssl=context, backlog=1024
    )
    print(
        json.dumps({"port": server.sockets[0].getsockname()[1], "ca": str(cert), "hosts": hosts}), flush=True
    )
    await asyncio.to_thread(sys.stdin.read)
    told = {
        "requests": sum(map(len, seen.values())),
        "issuers": len(seen),
        "most": max(map(most_in_a_second, seen.values())),
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
