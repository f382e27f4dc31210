"""One attempt to check a credential."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from outcrop.limits import CHECK_BYTES, CHECK_SECONDS, SERVICES_SECONDS
from outcrop.net.http import HttpClient, HttpResponse
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.verdict import Verdict


class UncheckableError(Exception):
    """The credential cannot be checked as it was found. The message says why, and is shown to people."""


@dataclass(slots=True)
class Attempt:
    """The input of a check, and the verdict that is proven so far.

    `wait_turn` waits until the issuer's rate limit allows a request. A check sets `proven` when it knows the
    verdict and goes on to ask for the services; if the time limit ends the check then, that verdict is used.
    """

    http: HttpClient
    check: CheckSpec
    values: Mapping[str, str] = field(repr=False)  # `secret`, and `part.NAME` for each companion
    wait_turn: Callable[[], Awaitable[None]]
    proven: Verdict | None = None

    @property
    def secret(self) -> str:
        """Return the main value of the credential, without its companions."""
        return self.values["secret"]

    def companion(self, name: str) -> str | None:
        """Return the value of the companion `name`; None if no such companion was found with the secret."""
        return self.values.get(f"part.{name}")

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        after_verdict: bool = False,
    ) -> HttpResponse:
        """Wait for the rate limit, send one HTTP request and return the response.

        Redirects are not followed, and a body is cut off after CHECK_BYTES bytes. `after_verdict` is for
        requests that only add services to a known verdict: it shortens the time limit. Raise HttpError if
        there is no response, and IssuerPausedError if the issuer asked for a pause that is too long.
        """
        await self.wait_turn()
        return await self.http.request(
            method,
            url,
            headers=headers,
            body=body,
            max_bytes=CHECK_BYTES,
            seconds=SERVICES_SECONDS if after_verdict else CHECK_SECONDS,
        )
