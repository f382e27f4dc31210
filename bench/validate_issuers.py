"""The fake issuers of the validation benchmark, in a process of their own: one TLS port for all host names.

python -m bench.validate_issuers FOLDER ISSUERS DELAY prints port, certificate and hosts as a line of JSON.
When its standard input ends, it prints the number of requests as another line.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path

from tests.support.tls import make_certificate

_BODY = b'{"id": 1, "scopes": ["read", "write"]}'
_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(_BODY),
    _BODY,
)


class IssuerProtocol(asyncio.Protocol):
    """Sends the same response to every request after a delay.

    It does no more than that, so that the client is what is measured.
    """

    def __init__(self, request_times: dict[str, list[float]], delay: float) -> None:
        self.request_times = request_times  # by host
        self.delay = delay
        self.unread = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Record the time of each complete request and schedule its response."""
        self.unread += data
        while b"\r\n\r\n" in self.unread:
            head, _, self.unread = self.unread.partition(b"\r\n\r\n")
            host_line = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"host:"))
            host = host_line[5:].strip().decode()
            self.request_times.setdefault(host, []).append(time.monotonic())
            asyncio.get_running_loop().call_later(self.delay, self.respond)

    def respond(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(_RESPONSE)


def max_requests_per_second(times: list[float]) -> int:
    """Return the largest number of requests in any sliding second."""
    largest = first = 0
    for last, time_ in enumerate(times):
        while time_ - times[first] >= 1.0:
            first += 1
        largest = max(largest, last - first + 1)
    return largest


async def main() -> None:
    folder, issuers, delay = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    hosts = [f"api.issuer{number}.example" for number in range(issuers)]
    cert, key = make_certificate(folder, *hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    request_times: dict[str, list[float]] = {}
    server = await asyncio.get_running_loop().create_server(
        lambda: IssuerProtocol(request_times, delay), "127.0.0.1", 0, ssl=context, backlog=1024
    )
    print(
        json.dumps({"port": server.sockets[0].getsockname()[1], "ca": str(cert), "hosts": hosts}), flush=True
    )
    await asyncio.to_thread(sys.stdin.read)
    totals = {
        "requests": sum(map(len, request_times.values())),
        "issuers": len(request_times),
        "max_per_second": max(map(max_requests_per_second, request_times.values())),
    }
    print(json.dumps(totals), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
