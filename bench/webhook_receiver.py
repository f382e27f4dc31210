"""A receiver for `make bench-webhooks`, behind TLS on loopback, in a process of its own: python -m bench.webhook_receiver FOLDER.

Whatever comes for `hang.example` is never answered. Each line on standard input is answered with the seconds from the change to its
arrival, as the finding's `source_url` tells when the change was.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path

import uvloop

from tests.support.tls import make_certificate

_ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Receiver(asyncio.Protocol):
    """One request on one connection."""

    def __init__(self, latencies: list[float]) -> None:
        self.latencies = latencies
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, there, body = self.data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not there or len(body) < int(length) or b"hang.example" in head:
            return
        began = json.loads(body)["finding"].get("source_url")
        if began and began[0].isdigit():
            self.latencies.append(time.time() - float(began))
        self.transport.write(_ANSWER)  # type: ignore[attr-defined]
        self.transport.close()


async def main(folder: Path) -> None:
    cert, key = make_certificate(folder, "good.example", "hang.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Receiver(latencies), "127.0.0.1", 0, ssl=context, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(latencies), flush=True)
        latencies.clear()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
