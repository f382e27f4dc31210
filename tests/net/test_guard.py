"""The guard: which addresses may be connected to."""

import asyncio
import ipaddress
import socket

import pytest

from outcrop.net.guard import Egress, EgressError, is_allowed, resolve
from outcrop.net.http import HttpError, open_http
from outcrop.settings import Settings
from tests.support.calls import recorded_calls

NOT_PUBLIC = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "168.63.129.16", "169.254.169.254",
    "172.16.0.1", "172.31.255.255",
    "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.9",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1",
    "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::",
    "3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "140.82.112.3",
    "100.63.255.255",
    "172.32.0.1",
    "2606:4700::1111",
    "2a00:1450:4001::1",
]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_a_non_public_address_is_refused(address):
    assert not is_allowed(ipaddress.ip_address(address), Egress())
    with pytest.raises(EgressError):
        resolve(address, 443, Egress())


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address):
    assert is_allowed(ipaddress.ip_address(address), Egress())
    assert resolve(address, 443, Egress()) == (address, 443)


def test_the_operator_can_allow_a_network():
    egress = Egress.parse(["10.0.0.0/8", "fd00::/8"], [], None)
    assert is_allowed(ipaddress.ip_address("10.9.8.7"), egress)
    assert is_allowed(ipaddress.ip_address("fd00::1"), egress)
    assert not is_allowed(ipaddress.ip_address("192.168.0.1"), egress)


def test_a_name_with_one_refused_address_is_refused_and_the_error_does_not_show_the_address():
    with pytest.raises(EgressError) as refused:
        resolve("localhost", 443, Egress())
    assert refused.value.message == "localhost: resolves to an address that is not public"


def test_connect_to_replaces_the_address_of_a_name():
    egress = Egress.parse([], ["git.example:443=127.0.0.1:8443", "six.example:443=[::1]:9443"], None)
    assert resolve("Git.Example", 443, egress) == ("127.0.0.1", 8443)
    assert resolve("six.example", 443, egress) == ("::1", 9443)


@pytest.mark.parametrize("host", ["api.github.com", "1.1.1.1", "127.0.0.1", "git.example"])
def test_a_closed_guard_allows_only_connect_to_hosts_and_looks_nothing_up(host):
    closed = Egress.parse(
        ["127.0.0.0/8", "1.1.1.1/32"], ["git.example:8443=127.0.0.1:9443"], None, closed=True
    )
    with recorded_calls(socket.getaddrinfo) as lookups:
        with pytest.raises(EgressError, match="OUTCROP_EGRESS_CONNECT_TO"):
            resolve(host, 443, closed)
        assert resolve("git.example", 8443, closed) == ("127.0.0.1", 9443)
    assert not lookups


def test_a_closed_guard_refuses_an_address_in_the_url():
    async def main() -> None:
        async with open_http(Egress.parse(["127.0.0.0/8"], [], None, closed=True)) as http:
            await http.get("http://127.0.0.1:1/")

    with pytest.raises(HttpError, match="address that is not public"):
        asyncio.run(main())


def test_a_setting_closes_the_guard():
    assert Egress.from_settings(Settings(egress_closed=True)).closed
    assert not Egress.from_settings(Settings()).closed


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "0177.0.0.1"])
def test_other_spellings_of_an_address_are_refused_too(host):
    with pytest.raises(EgressError):
        resolve(host, 443, Egress())


def test_a_name_without_an_address_is_reported():
    with pytest.raises(EgressError, match="has no address"):
        resolve("no-such-name.invalid", 443, Egress())
