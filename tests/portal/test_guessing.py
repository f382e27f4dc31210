"""Under many wrong sign-ins a member still gets in, and work for clients that have gone ends."""

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from outcrop.portal.connected import run_while_connected
from tests.support.backend import Backend, Tenant
from tests.support.portal_client import PASSWORD, make_person, sign_in_by_form


@pytest.fixture(autouse=True)
def no_failed_sign_ins(backend: Backend) -> None:
    backend.sql("TRUNCATE sign_in_attempts")


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


def test_a_member_gets_in_with_a_known_browser_while_others_guess(backend: Backend, tenant: Tenant) -> None:
    email = make_person(backend, tenant)
    known = backend.client()
    assert sign_in_by_form(known, email, PASSWORD).status_code == 303
    cookie = known.cookies["outcrop_browser"]
    assert email not in cookie
    stranger = backend.client()
    answers = [sign_in_by_form(stranger, email, "wrong wrong wrong") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [401] * 5
    # As after 15 failures: the pause is a minute, long enough for a busy machine.
    backend.sql(
        "INSERT INTO sign_in_attempts (email, network, at) SELECT email, network, at FROM sign_in_attempts, "
        "generate_series(1, 2)"
    )
    refused = sign_in_by_form(stranger, email, "wrong wrong wrong")
    assert refused.status_code == 429
    assert f"try again in {refused.headers['Retry-After']} seconds" in refused.text
    assert sign_in_by_form(backend.client(), email, PASSWORD).status_code == 429
    returning = backend.client()
    returning.cookies.set("outcrop_browser", cookie)
    assert sign_in_by_form(returning, email, PASSWORD).status_code == 303


def make_request(gone: asyncio.Event) -> Request:
    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http"}, receive)


def test_work_for_a_client_that_has_gone_is_cancelled() -> None:
    async def main() -> list[str]:
        gone, events = asyncio.Event(), list[str]()

        async def work() -> None:
            try:
                gone.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                events.append("cancelled")
                raise

        with pytest.raises(ClientDisconnect):
            await run_while_connected(make_request(gone), work())
        return events

    assert asyncio.run(main()) == ["cancelled"]


def test_a_client_that_waits_gets_the_result_or_the_error() -> None:
    async def give(value: object) -> object:
        await asyncio.sleep(0)
        if isinstance(value, Exception):
            raise value
        return value

    async def main() -> None:
        assert await run_while_connected(make_request(asyncio.Event()), give(7)) == 7
        with pytest.raises(ValueError, match="no"):
            await run_while_connected(make_request(asyncio.Event()), give(ValueError("no")))

    asyncio.run(main())
