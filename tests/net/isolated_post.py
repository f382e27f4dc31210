"""Post to names of a hostile name server, inside a network namespace of its own.

The test test_post.py starts this with `unshare`. Each line of standard output is a JSON list: host, outcome,
addresses connected to, number of DNS lookups.
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

PUBLIC, OTHER = "93.184.215.14", "93.184.215.15"  # on loopback inside the namespace
METADATA, AZURE_HOST = "169.254.169.254", "168.63.129.16"
PRIVATE, LOOPBACK = "10.1.2.3", "127.0.0.1"
# The addresses that the name server returns, lookup by lookup; the last ones are repeated.
NAMES: dict[str, list[list[str]]] = {
    "good.example": [[PUBLIC]],
    "private.example": [[PRIVATE]],
    "loopback.example": [[LOOPBACK]],
    "metadata.example": [[METADATA]],
    "azure-host.example": [[AZURE_HOST]],
    "mixed.example": [[PUBLIC, PRIVATE]],
    "mixed-other-way.example": [[PRIVATE, PUBLIC]],
    "mixed-families.example": [[PUBLIC, "::1"]],
    "six.example": [["fd00::1"]],
    "mapped.example": [["::ffff:127.0.0.1"]],
    "changes.example": [[PUBLIC], [LOOPBACK]],
    "changes-back.example": [[LOOPBACK], [PUBLIC]],
    "none.example": [[]],
    "port.example": [[PUBLIC]],
}
PORT_REFUSED = "port.example"  # is posted to by a client that may use port 8443 only
LITERALS = [
    "127.0.0.1",
    "[::1]",
    "10.1.2.3",
    "169.254.169.254",
    "168.63.129.16",
    "2130706433",
    "0x7f000001",
    "127.1",
    "[::ffff:127.0.0.1]",
]


class HostileNameServer(asyncio.DatagramProtocol):
    """Answers questions for A and AAAA records, and counts the lookups of each name."""

    def __init__(self) -> None:
        self.lookups: dict[str, int] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        offset, labels = 12, []
        while data[offset]:
            labels.append(data[offset + 1 : offset + 1 + data[offset]].decode())
            offset += data[offset] + 1
        (kind,) = struct.unpack("!H", data[offset + 1 : offset + 3])
        question, name = data[12 : offset + 5], ".".join(labels).lower()
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        answers = NAMES.get(name, [[]])
        if kind == 1:
            self.lookups[name] = self.lookups.get(name, 0) + 1
        addresses = answers[min(max(self.lookups.get(name, 1), 1), len(answers)) - 1]
        packed = [
            socket.inet_pton(family, address)
            for address in addresses
            if family and (":" in address) == (family == socket.AF_INET6)
        ]
        header = data[:2] + struct.pack("!HHHHH", 0x8180, 1, len(packed), 0, 0)
        records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(raw)) + raw for raw in packed)
        self.transport.sendto(header + question + records, addr)  # type: ignore[attr-defined]


def make_network(folder: Path) -> None:
    """Add the addresses to loopback and make this process resolve names with the hostile name server."""
    for command in (
        "ip link set lo up",
        *(f"ip addr add {address}/32 dev lo" for address in (PUBLIC, OTHER, METADATA, AZURE_HOST, PRIVATE)),
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
    """Run the name server and a receiver on all addresses, post to every name, and print the results."""
    loop = asyncio.get_running_loop()
    _, name_server = await loop.create_datagram_endpoint(HostileNameServer, ("127.0.0.1", 53))
    cert, key = make_certificate(folder, *NAMES)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    connected_to: list[str] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected_to.append(writer.get_extra_info("sockname")[0])
        await writer.start_tls(context)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    await asyncio.start_server(accept, ["0.0.0.0", "::"], 443)
    client = PostClient(Egress(ca_file=cert))
    limited = PostClient(Egress(ca_file=cert), ports=frozenset({8443}))
    for host in [*NAMES, *LITERALS, PORT_REFUSED]:
        connected_to.clear()
        try:
            outcome: object = (
                await (limited if host == PORT_REFUSED else client).post(
                    f"https://{host}/", {}, b"{}", seconds=10, max_bytes=1000, max_body=10
                )
            ).status
        except PostError as error:
            outcome = error.reason
        sys.stdout.write(
            json.dumps([host, outcome, list(connected_to), name_server.lookups.get(host, 0)]) + "\n"
        )


if __name__ == "__main__":
    make_network(Path(sys.argv[1]))
    asyncio.run(main(Path(sys.argv[1])))
