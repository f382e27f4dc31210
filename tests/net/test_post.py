"""POST requests to names with internal addresses, changing addresses or both kinds of addresses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.isolated_post import LITERALS, NAMES, PORT_REFUSED, PUBLIC

NOT_PUBLIC = "the name resolves to an address that is not public"
REFUSED = set(NAMES) - {"good.example", "changes.example", "none.example", PORT_REFUSED}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, list[str], int]]:
    """Post to every name in a network namespace, where public addresses are on its own loopback device.

    Return per host: the outcome, the addresses connected to, and the number of DNS lookups.
    """
    folder = tmp_path_factory.mktemp("inside")
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        sys.executable,
        "-m",
        "tests.net.isolated_post",
        str(folder),
    ]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2]
    )
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    return {host: (outcome, addresses, lookups) for host, outcome, addresses, lookups in lines}


def test_a_public_address_is_connected_to_after_one_lookup(
    results: dict[str, tuple[object, list[str], int]],
) -> None:
    assert results["good.example"] == (200, [PUBLIC], 1)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_name_with_an_internal_address_is_not_connected_to(
    results: dict[str, tuple[object, list[str], int]], name: str
) -> None:
    outcome, addresses, _ = results[name]
    assert (outcome, addresses) == (NOT_PUBLIC, [])


def test_dns_rebinding_fails_because_a_name_is_looked_up_once(
    results: dict[str, tuple[object, list[str], int]],
) -> None:
    assert results["changes.example"] == (200, [PUBLIC], 1)


def test_a_name_without_an_address_fails_with_a_reason(
    results: dict[str, tuple[object, list[str], int]],
) -> None:
    assert results["none.example"][:2] == ("the name has no address", [])


@pytest.mark.parametrize("host", LITERALS)
def test_an_ip_address_as_host_is_checked_too(
    results: dict[str, tuple[object, list[str], int]], host: str
) -> None:
    outcome, addresses, _ = results[host]
    assert (outcome, addresses) == (NOT_PUBLIC, [])


def test_a_port_that_the_operator_does_not_allow_is_refused_before_the_lookup(
    results: dict[str, tuple[object, list[str], int]],
) -> None:
    assert results[PORT_REFUSED] == ("port 443 is not in OUTCROP_WEBHOOK_PORTS", [], 0)
