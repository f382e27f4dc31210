"""Runs in a network of its own, with a name server that lies: tests/net/test_post.py starts it by `unshare`.

Each line of standard output says of one name how the delivery ended and which addresses were connected to.
"""

import asyncio
import json
import socket
import ssl
import struct
import subprocess
import sys
from pathlib import Path

from outcrop.net.guard import Egress
from outcrop.net.post import PostClient, PostError
from tests.support.tls import make_certificate

PUBLIC, OTHER = "93.184.215.14", "93.184.215.15"  # here they are this network's own
METADATA, PRIVATE, LOOPBACK = "169.254.169.254", "10.1.2.3", "127.0.0.1"
# What the name server says, one look-up after the other; the last answer stays.
NAMES: dict[str, list[list[str]]] = {
    "good.example": [[PUBLIC]],
    "private.example": [[PRIVATE]],
    "loopback.example": [[LOOPBACK]],
    "metadata.example": [[METADATA]],
    "mixed.example": [[PUBLIC, PRIVATE]],
    "mixed-other-way.example": [[PRIVATE, PUBLIC]],
    "mixed-families.example": [[PUBLIC, "::1"]],
    "six.example": [["fd00::1"]],
    "mapped.example": [["::ffff:127.0.0.1"]],
    "changes.example": [[PUBLIC], [LOOPBACK]],
    "changes-back.example": [[LOOPBACK], [PUBLIC]],
    "none.example": [[]],
}
LITERALS = [
    "127.0.0.1",
    "[::1]",
    "10.1.2.3",
    "169.254.169.254",
    "2130706433",
    "0x7f000001",
    "127.1",
    "[::ffff:127.0.0.1]",
]


class LyingNameServer(asyncio.DatagramProtocol):
    """Answers questions for A and AAAA, and forgets nothing that it was asked."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        at, labels = 12, []
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += data[at] + 1
        (kind,) = struct.unpack("!H", data[at + 1 : at + 3])
        question, name = data[12 : at + 5], ".".join(labels).lower()
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        answers = NAMES.get(name, [[]])
        if kind == 1:
            self.asked[name] = self.asked.get(name, 0) + 1
        now = answers[min(max(self.asked.get(name, 1), 1), len(answers)) - 1]
        found = [
            socket.inet_pton(family, one)
            for one in now
            if family and (":" in one) == (family == socket.AF_INET6)
        ]
        head = data[:2] + struct.pack("!HHHHH", 0x8180, 1, len(found), 0, 0)
        records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(raw)) + raw for raw in found)
        self.transport.sendto(head + question + records, addr)  # type: ignore[attr-defined]


def make_network(folder: Path) -> None:
    for command in (
        "ip link set lo up",
        *(f"ip addr add {address}/32 dev lo" for address in (PUBLIC, OTHER, METADATA, PRIVATE)),
        "ip -6 addr add fd00::1/128 dev lo",
    ):
        subprocess.run(command.split(), check=True)
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    (folder / "hosts").write_text("")
    (folder / "nsswitch.conf").write_text("hosts: files dns\n")
    for name in ("resolv.conf", "hosts", "nsswitch.conf"):
        if Path("/etc", name).exists():
            subprocess.run(["mount", "--bind", str(folder / name), f"/etc/{name}"], check=True)


async def main(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    _, names = await loop.create_datagram_endpoint(LyingNameServer, ("127.0.0.1", 53))
    cert, key = make_certificate(folder, *NAMES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    reached: list[str] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer.get_extra_info("sockname")[0])
        await writer.start_tls(context)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    await asyncio.start_server(accept, ["0.0.0.0", "::"], 443)
    poster = PostClient(Egress(ca_file=cert))
    for host in [*NAMES, *LITERALS]:
        reached.clear()
        try:
            ended: object = (
                await poster.post(f"https://{host}/", {}, b"{}", seconds=10, max_bytes=1000, max_body=10)
            ).status
        except PostError as error:
            ended = error.reason
        sys.stdout.write(json.dumps([host, ended, list(reached), names.asked.get(host, 0)]) + "\n")


if __name__ == "__main__":
    make_network(Path(sys.argv[1]))
    asyncio.run(main(Path(sys.argv[1])))
