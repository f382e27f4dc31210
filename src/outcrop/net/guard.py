"""Decide which addresses may be connected to.

Users choose host names: targets, webhook addresses, redirects, hosts in found URLs. Without this check they
could reach internal services or the cloud's metadata address (SSRF). A name is resolved once, every address
of the name is checked, and the checked address is the one connected to. So a name server that answers
differently the second time (DNS rebinding) gains nothing.

`ipaddress.is_global` is not enough: it accepts IPv6 addresses that translate to internal IPv4 addresses.
IPv4 follows the IANA registry of special-purpose addresses, and adds 168.63.129.16, at which every virtual
machine on Azure reaches the host that it runs on. IPv6 is 2000::/3 without its special blocks.
"""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outcrop.domain.errors import OperatorError
from outcrop.domain.proxy_address import ProxyAddress

if TYPE_CHECKING:
    from outcrop.settings import Settings  # not imported at run time: a scan of local files does not need it

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LookUp = Callable[[str, int], list[str]]  # returns the addresses of a name; raises OSError if it has none

_NOT_PUBLIC_V4 = [
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32",
        "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
        "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
    )
]  # fmt: skip
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = [
    ipaddress.IPv6Network(block)
    for block in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
]


class EgressError(OperatorError):
    """The host may not be connected to, or its name has no address."""


class NoAddressError(EgressError):
    """The host name has no address."""


@dataclass(frozen=True, slots=True)
class Egress:
    """The operator's settings for outbound connections."""

    allow: tuple[Network, ...] = ()  # networks that are allowed although they are not public
    connect_to: tuple[tuple[str, int, str, int], ...] = ()  # (host, port, address and port to use instead)
    ca_file: Path | None = None  # certificate authorities that are trusted in addition to the system's
    source_address: str | None = None  # the local address that connections are made from
    closed: bool = False  # allow only the hosts in `connect_to`
    proxy: ProxyAddress | None = None  # all connections are made through it

    @classmethod
    def parse(
        cls,
        allow: Sequence[str],
        connect_to: Sequence[str],
        ca_file: Path | None,
        source_address: str | None = None,
        *,
        closed: bool = False,
        proxy: str | None = None,
    ) -> "Egress":
        """Parse settings: `allow` has networks in CIDR form, `connect_to` has `host:port=address:port`.

        `proxy` is the address of a proxy, with its login.
        """
        replacements = []
        for entry in connect_to:
            (host, port), (address, address_port) = (side.rsplit(":", 1) for side in entry.split("=", 1))
            replacements.append((host.lower(), int(port), address.strip("[]"), int(address_port)))
        return cls(
            tuple(ipaddress.ip_network(network, strict=False) for network in allow),
            tuple(replacements),
            ca_file,
            source_address,
            closed,
            ProxyAddress.parse(proxy) if proxy else None,
        )

    @classmethod
    def from_settings(cls, settings: "Settings") -> "Egress":
        """Return the Egress that the OUTCROP_EGRESS_* settings describe."""
        return cls.parse(
            settings.egress_allow,
            settings.egress_connect_to,
            settings.egress_ca_file,
            settings.egress_source,
            closed=settings.egress_closed,
            proxy=settings.egress_proxy.get_secret_value() if settings.egress_proxy else None,
        )


def is_allowed(address: Address, egress: Egress) -> bool:
    """Whether the address is public or in a network that the operator allows, and `egress` is not closed."""
    if egress.closed:
        return False
    if any(address.version == network.version and address in network for network in egress.allow):
        return True
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in block for block in _NOT_PUBLIC_V6)


def look_up(host: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver has for a name, in its order."""
    results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(result[4][0]).partition("%")[0] for result in results]


def resolve(host: str, port: int, egress: Egress, look_up: LookUp = look_up) -> tuple[str, int]:
    """Return the checked address and port to connect to for `host` and `port`.

    `look_up` returns the addresses of a name. Raise NoAddressError if it returns none, and EgressError if any
    of them is not allowed. The message does not show the address: it would describe the internal network to
    those who choose names.
    """
    for name, name_port, address, address_port in egress.connect_to:
        if name == host.lower() and name_port == port:
            return address, address_port
    if egress.closed:  # refused before the DNS lookup, which would be outbound traffic too
        raise EgressError(f"{host}: only hosts in OUTCROP_EGRESS_CONNECT_TO may be connected to")
    addresses = _addresses_of(host, port, look_up)
    for candidate in addresses:
        if not is_allowed(candidate, egress):
            raise EgressError(f"{host}: resolves to an address that is not public")
    return str(addresses[0]), port


def _addresses_of(host: str, port: int, look_up: LookUp) -> list[Address]:
    """Return the address that `host` spells, or all addresses that `look_up` returns for the name."""
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass  # a name
    try:
        addresses = look_up(host, port)
    except (OSError, UnicodeError):  # the lookup failed, or `host` cannot be a name
        raise NoAddressError(f"{host}: the name has no address") from None
    return [ipaddress.ip_address(address) for address in addresses]
