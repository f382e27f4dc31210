"""What people type (a note, a name) without the credentials in it: those of the account's findings, and any that the rules recognise."""

import asyncio
import re
from collections.abc import Callable, Iterator
from time import monotonic
from urllib.parse import unquote

import structlog

from outcrop.domain.errors import OutcropError
from outcrop.domain.finding import cut_note
from outcrop.domain.secret import MASK, MIN_LENGTH_TO_MASK_IN_TEXT, MaskedText, Secret, is_password, reveal
from outcrop.scanner.engine.excerpt import mask_text
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.store.db import Connection
from outcrop.store.findings import table
from outcrop.store.keyring import Keyring

_PATIENCE = 0.5  # seconds after the first text within which the rules are waited for
_AROUND = "\"'`<>()[]{}.,;:!?*„“”‚‘’«»"  # what stands around a word and is not of it
_PARTS = re.compile(r"[\s\"'`<>()\[\]{},;=|&]+|:(?=\S)")
_DRAWN = re.compile(
    r"\b(?=\w*[0-9])(?=\w*[A-Z])(?=\w*[a-z])\w{20,}\b", re.ASCII
)  # names of tickets have no small letters

log = structlog.get_logger()


class NoteCleaner:
    """Loads the rules when the first text comes: most processes never get one, and compiling them takes seconds where nobody has yet."""

    def __init__(self, load: Callable[[], RuleSet]) -> None:
        self._load = load
        self._loading: asyncio.Task[RuleSet] | None = None
        self._until = 0.0

    async def clean(self, db: Connection, keys: Keyring, account_id: int, text: str) -> MaskedText:
        """Mask in a text whatever is a credential of the account, or looks like one."""
        text = await _without_known(db, keys, account_id, text)
        ruleset = await self._ruleset()
        # While there are no rules yet, only what nobody would take for a word or a number of a ticket is masked.
        return MaskedText(_DRAWN.sub(MASK, text) if ruleset is None else mask_text(ruleset, text))

    async def clean_note(
        self, db: Connection, keys: Keyring, account_id: int, note: str | None
    ) -> MaskedText | None:
        return None if note is None else cut_note(await self.clean(db, keys, account_id, note))

    async def _ruleset(self) -> RuleSet | None:
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
            self._until = monotonic() + _PATIENCE
        try:
            return await asyncio.wait_for(asyncio.shield(self._loading), self._until - monotonic())
        except TimeoutError:
            return None
        except (OutcropError, OSError) as error:  # the operator's own, which may be mended meanwhile
            log.error("rules_not_loaded", error=str(error))  # noqa: TRY400 - what is wrong with them is all in its words
            self._loading = None
            return None


async def _without_known(db: Connection, keys: Keyring, account_id: int, text: str) -> str:
    """Mask the credentials of the account's findings that stand in a text as words, whatever the rules would say of them."""
    words = {keys.compute_fingerprint(word): word for word in map(Secret, _words(text))}
    known = await table.select_secret_types(db, account_id, list(words)) if words else {}
    for fingerprint, type_ in sorted(known.items(), key=lambda one: -len(reveal(words[one[0]]))):
        text = Secret(reveal(words[fingerprint]), mask_all=is_password(type_)).masked_within(text)
    return text


def _words(text: str) -> Iterator[str]:
    for written in {text, unquote(text)}:
        for word in {*written.split(), *_PARTS.split(written)}:
            yield from {one for one in (word, word.strip(_AROUND)) if len(one) >= MIN_LENGTH_TO_MASK_IN_TEXT}
