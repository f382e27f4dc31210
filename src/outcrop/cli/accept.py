"""Accept the connections of an API process: one address may hold only a part of the descriptors."""

import asyncio
import errno
import ipaddress
import resource
import socket
import ssl
from collections import defaultdict
from collections.abc import Callable, Sequence

from outcrop.lazy_logger import get_logger
from outcrop.limits import REQUEST_HEAD_SECONDS

_RESERVED_DESCRIPTORS = 64  # for the database, files and the probes of the process itself
_PAUSE = 0.1  # seconds until the next try if no descriptor is free
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

log = get_logger()


class Connection:
    """An accepted connection: its address, and whether a complete request head has come."""

    def __init__(self, limits: "ConnectionLimits", address: str | None, sock: socket.socket) -> None:
        self.address = address  # None: the address may hold any number
        self._limits = limits
        self._socket = sock
        self.transport: asyncio.Transport | None = None

    def set_waiting(self, *, waiting: bool) -> None:
        """Report whether the connection waits for a request head. Then others may take its place."""
        self._limits.set_waiting(self, waiting=waiting)

    def closed(self) -> None:
        """Report that the connection is closed."""
        self._limits.remove(self)

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()
        else:  # in the TLS handshake, which then fails
            self._socket.shutdown(socket.SHUT_RDWR)


class ConnectionLimits:
    """The open connections of a process by address.

    An address that has too many loses the one that has waited longest for a request head. So a client
    that sends requests is served, also behind an address that holds idle connections.
    """

    def __init__(self, descriptors: int, exempt: Sequence[str]) -> None:
        """Set the limits for a process with `descriptors`; addresses in `exempt` may hold any number."""
        self.max_total = max(descriptors - _RESERVED_DESCRIPTORS, descriptors // 2)
        self.max_per_address = max(descriptors // 4, 1)
        self._exempt = [ipaddress.ip_network(text, strict=False) for text in exempt]
        self._open: dict[str, set[Connection]] = defaultdict(set)
        self._waiting: dict[str, dict[Connection, None]] = defaultdict(dict)  # longest first
        self._all: set[Connection] = set()
        self.has_room = asyncio.Event()
        self.has_room.set()

    def admit(self, sock: socket.socket, host: str) -> Connection | None:
        """Return the connection of an accepted socket; None if its address has no right to another one."""
        connection = Connection(self, self._key(host), sock)
        if connection.address is not None:
            held = self._open[connection.address]
            if len(held) >= self.max_per_address and not self._close_longest_waiting(connection.address):
                return None
            held.add(connection)
        self._all.add(connection)
        if len(self._all) >= self.max_total:
            self.has_room.clear()
        self.set_waiting(connection, waiting=True)
        return connection

    def set_waiting(self, connection: Connection, *, waiting: bool) -> None:
        """Move a connection to the end of those that wait for a request head, or take it out of them."""
        if connection.address is not None and connection in self._all:
            queue = self._waiting[connection.address]
            queue.pop(connection, None)
            if waiting:
                queue[connection] = None

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._all.discard(connection)
        if len(self._all) < self.max_total:
            self.has_room.set()
        if connection.address is None:
            return
        self._waiting[connection.address].pop(connection, None)
        self._open[connection.address].discard(connection)
        if not self._open[connection.address]:
            del self._open[connection.address], self._waiting[connection.address]

    def _close_longest_waiting(self, address: str) -> bool:
        """Close the connection of an address that has waited longest for a request head, if there is one."""
        for connection in self._waiting[address]:
            connection.abort()
            self._open[address].discard(connection)  # `remove` follows when the transport has closed it
            del self._waiting[address][connection]
            return True
        return False

    def _key(self, host: str) -> str | None:
        """Return what an address is counted by: an IPv4 address or an IPv6 /64; None if it is exempt."""
        ip = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(ip, ipaddress.IPv6Address):
            ip = ip.ipv4_mapped or ip
        if any(ip in network for network in self._exempt):
            return None
        return str(ipaddress.ip_network((ip, 64), strict=False)) if ip.version == 6 else str(ip)


class Acceptor:
    """Accepts the connections of a listening socket, within the limits."""

    def __init__(
        self,
        sock: socket.socket,
        limits: ConnectionLimits,
        protocol: Callable[[Connection], asyncio.Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        """Serve each connection of `sock` with a new `protocol`; over TLS, if there is a `tls` context."""
        self._socket, self._limits, self._protocol, self._tls = sock, limits, protocol, tls
        self._connecting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept connections until the task is cancelled. A full process leaves them in the backlog."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        while True:
            await self._limits.has_room.wait()
            try:
                sock, address = await loop.sock_accept(self._socket)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    log.warning("connections_exhausted", error=error.strerror)
                await asyncio.sleep(_PAUSE)
                continue
            if (connection := self._limits.admit(sock, address[0])) is None:
                sock.close()
                continue
            task = loop.create_task(self._connect(sock, connection))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, sock: socket.socket, connection: Connection) -> None:
        """Hand a connection to its protocol, after the TLS handshake if there is one."""
        timeout = None if self._tls is None else REQUEST_HEAD_SECONDS
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._protocol(connection), sock, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except OSError:  # the client has gone, or its handshake failed or took too long
            connection.closed()
            sock.close()


def count_descriptors() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
