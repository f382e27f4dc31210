"""What "test access" says about a token, on stand-ins of code hosts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from outcrop.domain.errors import BadInputError, BusyError
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.services.access import AccessCheck, check_access, describe_access
from tests.support.code_hosts.gitlab import gitlab
from tests.support.code_hosts.stand_in import StandIn, answer_json, run_stand_in

GROUP = TargetSpec(TargetKind.OWNER, "gitlab:acme")
TOKEN = "glpat-made-up"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StandIn]:
    with run_stand_in(gitlab(), tmp_path / "tls") as stand_in:
        stand_in.add("acme/shop")
        stand_in.add("acme/vault", private=True)
        yield stand_in


def see(host: StandIn, spec: TargetSpec, token: str | None = TOKEN) -> str:
    assert host.server is not None
    check = AccessCheck(host.server.egress, "https://api.github.com")
    seen = asyncio.run(check_access(check, spec, Secret(token) if token else None))
    return describe_access(spec, seen)


def test_the_count_the_owner_and_the_missing_scopes_are_named(host: StandIn) -> None:
    text = see(host, GROUP)
    assert "2 repositories, 1 of them not public" in text
    assert "belongs to robot" in text
    assert "lacks: read_repository" in text
    assert "1 repository, 0 of them" in see(host, GROUP, None)
    repository = TargetSpec(TargetKind.REPOSITORY, "https://gitlab.com/acme/vault")
    assert "1 repository, 1 of them not public" in see(host, repository)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_a_refusal_is_an_error_at_once_and_never_repeats_the_token(host: StandIn, status: int) -> None:
    host.always["/api/v4"] = answer_json({"message": f"no {TOKEN}"}, status, {"Retry-After": "30"})
    with pytest.raises(BadInputError) as caught:
        see(host, GROUP)
    assert TOKEN not in caught.value.message


def test_a_site_has_no_access_to_test(host: StandIn) -> None:
    with pytest.raises(BadInputError, match="code host"):
        see(host, TargetSpec(TargetKind.SITE, "https://www.example.org/"))


def test_tests_at_once_are_bounded(host: StandIn) -> None:
    async def main() -> None:
        assert host.server is not None
        check = AccessCheck(host.server.egress, "https://api.github.com")
        async with check.slots, check.slots:
            with pytest.raises(BusyError):
                await check_access(check, GROUP, None)

    asyncio.run(main())
