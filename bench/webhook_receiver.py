"""The receiver of `make bench-webhooks`, with TLS on loopback: python -m bench.webhook_receiver FOLDER.

Requests for `hang.example` get no response. For each line on standard input it prints, as a JSON list, the
seconds that each delivery took since the last line. The finding's `source_url` has the time of its change.
"""

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path

import uvloop

from tests.support.tls import make_certificate

_RESPONSE = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class ReceiverProtocol(asyncio.Protocol):
    """Answers one request on one connection."""

    def __init__(self, latencies: list[float]) -> None:
        self.latencies = latencies
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Record the latency of a complete request and respond, unless it is for `hang.example`."""
        self.data += data
        head, end_of_head, body = self.data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not end_of_head or len(body) < int(length) or b"hang.example" in head:
            return
        change_time = json.loads(body)["finding"].get("source_url")
        if change_time and change_time[0].isdigit():
            self.latencies.append(time.time() - float(change_time))
        self.transport.write(_RESPONSE)  # type: ignore[attr-defined]
        self.transport.close()


async def main(folder: Path) -> None:
    cert, key = make_certificate(folder, "good.example", "hang.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ReceiverProtocol(latencies), "127.0.0.1", 0, ssl=context, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(latencies), flush=True)
        latencies.clear()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1])))
