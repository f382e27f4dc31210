"""Many credentials asked about: side by side as far as each issuer takes them, however many of one issuer there are."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outcrop.scanner.rules.model import Rule
from outcrop.validation.engine import Validator
from outcrop.validation.issuer import MAX_CONCURRENT_CHECKS
from outcrop.validation.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential that is to be asked about. It is never shown."""

    rule: Rule
    secret: str = field(repr=False)
    parts: Mapping[str, str] = field(repr=False)


async def check_all(
    validator: Validator, wanted: Sequence[Credential], told: Callable[[int, Verdict], None]
) -> None:
    """Tell the verdict on each by its number, as it comes.

    No more of one issuer are begun than it is asked about at once: the time that one may take is not spent waiting for others.
    """
    by_issuer: dict[str, list[int]] = {}
    for number, one in enumerate(wanted):
        by_issuer.setdefault(one.rule.issuer, []).append(number)

    async def take(numbers: list[int]) -> None:
        while numbers:
            number = numbers.pop()
            one = wanted[number]
            told(number, await validator.check(one.rule, one.secret, one.parts))

    async with asyncio.TaskGroup() as group:
        for numbers in by_issuer.values():
            numbers.reverse()  # popped from the end: the first comes first
            for _ in range(min(MAX_CONCURRENT_CHECKS, len(numbers))):
                group.create_task(take(numbers))
