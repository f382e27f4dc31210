"""Where a delivery may go: names that lead inside, that change, or that have two faces."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.isolated_post import LITERALS, NAMES, PUBLIC

NOT_PUBLIC = "the name resolves to an address that is not public"
REFUSED = set(NAMES) - {"good.example", "changes.example", "none.example"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, list[str], int]]:
    """Ask for every name inside a network of its own, where even public addresses are this machine's."""
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
    return {host: (ended, reached, asked) for host, ended, reached, asked in lines}


def test_a_public_address_is_connected_to_after_one_look_up(
    told: dict[str, tuple[object, list[str], int]],
) -> None:
    assert told["good.example"] == (200, [PUBLIC], 1)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_name_that_leads_inside_is_not_connected_to(
    told: dict[str, tuple[object, list[str], int]], name: str
) -> None:
    ended, reached, _ = told[name]
    assert (ended, reached) == (NOT_PUBLIC, [])


def test_a_name_that_changes_between_look_ups_is_looked_up_once_and_that_address_is_used(
    told: dict[str, tuple[object, list[str], int]],
) -> None:
    assert told["changes.example"] == (200, [PUBLIC], 1)


def test_a_name_without_an_address_is_told(told: dict[str, tuple[object, list[str], int]]) -> None:
    assert told["none.example"][:2] == ("the name has no address", [])


@pytest.mark.parametrize("host", LITERALS)
def test_an_address_in_place_of_a_name_is_checked_too(
    told: dict[str, tuple[object, list[str], int]], host: str
) -> None:
    ended, reached, _ = told[host]
    assert (ended, reached) == (NOT_PUBLIC, [])
