"""Where we may connect to: a name is resolved once, every address of it is checked, and the checked address is used.

`ipaddress.is_global` is not enough: it lets addresses through that lead back to this machine by translation.
IPv4 goes by the registry of special-purpose addresses, IPv6 is 2000::/3 without its special blocks.
"""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outcrop.domain.errors import OperatorError

if TYPE_CHECKING:
    from outcrop.settings import Settings  # a scan of files loads none of it

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC_V4 = [
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
        "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
        "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
]  # fmt: skip
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = [
    ipaddress.IPv6Network(block)
    for block in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
]


class EgressError(OperatorError):
    """An address that must not be connected to, or a name that has none."""


class NoAddressError(EgressError):
    """A name without an address."""


@dataclass(frozen=True, slots=True)
class Egress:
    """What the operator allows beyond the public internet."""

    allow: tuple[Network, ...] = ()
    connect_to: tuple[tuple[str, int, str, int], ...] = ()  # host, port → address, port
    ca_file: Path | None = None
    source_address: str | None = None  # the address of this machine that connections come from
    closed: bool = False  # nothing may be connected to but what `connect_to` names

    @classmethod
    def parse(
        cls,
        allow: Sequence[str],
        connect_to: Sequence[str],
        ca_file: Path | None,
        source_address: str | None = None,
        *,
        closed: bool = False,
    ) -> "Egress":
        """Read the operator's settings: networks, and `host:port=address:port`."""
        pairs = []
        for entry in connect_to:
            (host, port), (address, to_port) = (side.rsplit(":", 1) for side in entry.split("=", 1))
            pairs.append((host.lower(), int(port), address.strip("[]"), int(to_port)))
        return cls(
            tuple(ipaddress.ip_network(part, strict=False) for part in allow),
            tuple(pairs),
            ca_file,
            source_address,
            closed,
        )

    @classmethod
    def from_settings(cls, settings: "Settings") -> "Egress":
        return cls.parse(
            settings.egress_allow,
            settings.egress_connect_to,
            settings.egress_ca_file,
            settings.egress_source,
            closed=settings.egress_closed,
        )


def is_allowed(address: Address, egress: Egress) -> bool:
    """Tell whether an address is public or named by the operator."""
    if egress.closed:
        return False
    if any(address.version == network.version and address in network for network in egress.allow):
        return True
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in block for block in _NOT_PUBLIC_V6)


def resolve(host: str, port: int, egress: Egress) -> tuple[str, int]:
    """Give the address to connect to for a name; one address that is not allowed refuses the name."""
    for name, at, address, to_port in egress.connect_to:
        if name == host.lower() and at == port:
            return address, to_port
    if egress.closed:  # not even looked up
        raise EgressError(f"{host}: nothing may be connected to but what OUTCROP_EGRESS_CONNECT_TO names")
    found: list[Address]
    try:
        found = [ipaddress.ip_address(host)]
    except ValueError:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # no answer, or no name at all
            raise NoAddressError(f"{host}: the name has no address") from None
        found = [ipaddress.ip_address(str(answer[4][0]).partition("%")[0]) for answer in answers]
    for one in found:
        if not is_allowed(one, egress):
            raise EgressError(f"{host}: leads to {one}, which is not a public address")
    return str(found[0]), port
