"""Check many credentials, with several checks per issuer at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outcrop.limits import ISSUER_CHECKS
from outcrop.scanner.rules.model import Rule
from outcrop.validation.engine import Validator
from outcrop.validation.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential to check. Its repr does not show the secret."""

    rule: Rule
    secret: str = field(repr=False)
    parts: Mapping[str, str] = field(repr=False)  # companions by name


async def check_all(
    validator: Validator, credentials: Sequence[Credential], on_verdict: Callable[[int, Verdict], None]
) -> None:
    """Check all credentials; call `on_verdict(index, verdict)` for each one as soon as its verdict is known.

    `index` is the position in `credentials`. Return when all are checked. At most ISSUER_CHECKS of
    one issuer are started at once, so that a credential does not spend its time limit waiting for others of
    the same issuer.
    """
    queues: dict[str, list[int]] = {}
    for index, credential in enumerate(credentials):
        queues.setdefault(credential.rule.issuer, []).append(index)

    async def work_off(queue: list[int]) -> None:
        """Take indexes from `queue`, check their credentials and call `on_verdict`, until the queue is empty.

        All credentials of a queue have the same issuer. Several tasks share a queue.
        """
        while queue:
            index = queue.pop()
            credential = credentials[index]
            on_verdict(index, await validator.check(credential.rule, credential.secret, credential.parts))

    async with asyncio.TaskGroup() as group:
        for queue in queues.values():
            queue.reverse()  # `pop` takes from the end, so this keeps the order
            for _ in range(min(ISSUER_CHECKS, len(queue))):
                group.create_task(work_off(queue))
