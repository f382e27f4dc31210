"""Webhook receivers that misbehave, each on its own port: `python -m tests.support.hostile FOLDER`.

The program prints the port of each receiver as one line of JSON. After a line on standard input it prints,
for each receiver, the numbers of connections and of complete requests.
"""

import asyncio
import gzip
import json
import os
import ssl
import sys
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from tests.support.tls import make_certificate

Behaviour = Callable[[StreamReader, StreamWriter], Awaitable[None]]
FOR_EVER = 60.0  # seconds
BOMB = gzip.compress(bytes(16 << 20), 1)


async def never_answers(_: StreamReader, __: StreamWriter) -> None:
    await asyncio.sleep(FOR_EVER)


async def one_byte_a_second(_: StreamReader, writer: StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
        writer.write(bytes([byte]))
        await asyncio.sleep(1)


async def _write_endlessly(writer: StreamWriter, first: bytes, repeated: bytes) -> None:
    """Write `first` once, then `repeated` until the client disconnects."""
    writer.write(first)
    block = repeated * (65536 // len(repeated))
    while not writer.transport.is_closing():  # after start_tls, drain() does not raise
        writer.write(block)
        await writer.drain()
        await asyncio.sleep(0)


async def endless_headers(_: StreamReader, writer: StreamWriter) -> None:
    await _write_endlessly(writer, b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n")


async def endless_body(_: StreamReader, writer: StreamWriter) -> None:
    await _write_endlessly(writer, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", b"and more ")


async def endless_chunks(_: StreamReader, writer: StreamWriter) -> None:
    await _write_endlessly(writer, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")


async def interim_flood(_: StreamReader, writer: StreamWriter) -> None:
    await _write_endlessly(writer, b"", b"HTTP/1.1 100 Continue\r\n\r\n")


async def gzip_bomb(_: StreamReader, writer: StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB
    )


def answers(raw: bytes) -> Behaviour:
    """Return a behaviour that sends these bytes."""

    async def answer(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(raw)

    return answer


async def half_close(reader: StreamReader, writer: StreamWriter) -> None:
    """Shut down the sending side without a response, and keep the socket open."""
    writer.transport.get_extra_info("socket").shutdown(1)
    await asyncio.sleep(FOR_EVER)


async def reset(_: StreamReader, writer: StreamWriter) -> None:
    """Reset the connection: with a linger time of 0, closing sends RST."""
    import socket  # noqa: PLC0415
    import struct  # noqa: PLC0415

    writer.transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    writer.transport.abort()


async def closes(_: StreamReader, writer: StreamWriter) -> None:
    writer.close()


KINDS: dict[str, Behaviour] = {
    "never-answers": never_answers,
    "one-byte-a-second": one_byte_a_second,
    "endless-headers": endless_headers,
    "endless-body": endless_body,
    "endless-chunks": endless_chunks,
    "gzip-bomb": gzip_bomb,
    "interim-flood": interim_flood,
    "redirect": answers(b"HTTP/1.1 307 Go\r\nLocation: https://trap.example/\r\nContent-Length: 0\r\n\r\n"),
    "redirect-inside": answers(
        b"HTTP/1.1 302 Go\r\nLocation: https://127.0.0.1:TRAP/\r\nContent-Length: 0\r\n\r\n"
    ),
    "reset": reset,
    "half-close": half_close,
    "closes-after-the-request": closes,
    "204-with-a-body": answers(b"HTTP/1.1 204 None\r\nContent-Length: 9\r\n\r\nsome body"),
    "wrong-length": answers(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nfew"),
    "http-0.9": answers(b"<p>Hello</p>\n"),
    "wrong-certificate": never_answers,
    "expired-certificate": never_answers,
    "plain-http": answers(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "no-handshake": never_answers,
    "trap": answers(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
}
WITHOUT_TLS = {"plain-http", "no-handshake"}


def name_of(kind: str) -> str:
    return f"{kind.replace('.', '-')}.example"


async def main(folder: Path) -> None:
    """Serve all kinds, with certificates in the folder, and report ports and counters."""
    good, wrong, expired = (folder / name for name in ("good", "wrong", "expired"))
    for certificate_folder in (good, wrong, expired):
        certificate_folder.mkdir()
    files = {
        "wrong-certificate": make_certificate(wrong, "another.example", address=False),
        "expired-certificate": make_certificate(expired, name_of("expired-certificate"), hours=(-2, -1)),
    }
    usual = make_certificate(good, *map(name_of, KINDS))
    (folder / "ca.pem").write_bytes(b"".join(cert.read_bytes() for cert, _ in [usual, *files.values()]))
    connections: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    ports: dict[str, int] = {}

    async def serve(kind: str, context: ssl.SSLContext) -> None:
        async def accept(reader: StreamReader, writer: StreamWriter) -> None:
            connections[kind] += 1
            with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError, ConnectionError):
                if kind == "no-handshake":
                    await asyncio.sleep(FOR_EVER)
                if kind not in WITHOUT_TLS:
                    await writer.start_tls(context, ssl_handshake_timeout=FOR_EVER)
                    await _read_request(reader)
                    requests[kind] += 1
                await behave(reader, writer)
                await writer.drain()
            with suppress(OSError, ssl.SSLError):
                writer.close()

        behave = KINDS[kind]
        if kind == "redirect-inside":
            behave = answers(
                b"HTTP/1.1 302 Go\r\nLocation: https://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n"
                % ports["trap"]
            )
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        ports[kind] = server.sockets[0].getsockname()[1]

    for kind in sorted(KINDS, reverse=True):  # `trap` first: another kind redirects to its port
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files.get(kind, usual))
        await serve(kind, context)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    _print_json(ports)
    await asyncio.to_thread(sys.stdin.readline)
    _print_json({kind: [connections[kind], requests[kind]] for kind in KINDS})


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def _read_request(reader: StreamReader) -> None:
    """Read a complete request; raise IncompleteReadError if it ends early."""
    head = await reader.readuntil(b"\r\n\r\n")
    (length,) = [
        line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    ]
    await reader.readexactly(int(length))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
    os._exit(0)
