"""Mask credentials in texts that users type, such as notes, names and addresses.

Each text has a limit of its own, which its caller checks first: a long text takes long to search. The search
runs in threads, so that other requests are answered meanwhile.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from urllib.parse import unquote

from outcrop.domain.errors import BadInputError, OutcropError
from outcrop.domain.finding import cut_note
from outcrop.domain.secret import MASK, MIN_LENGTH_TO_MASK_IN_TEXT, MaskedText, Secret, is_password, reveal
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.lazy_logger import get_logger
from outcrop.lazy_regex import regex
from outcrop.limits import TEXT_LENGTH
from outcrop.scanner.engine.masking import hides_in_paths, mask_text
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.store.db import Connection
from outcrop.store.findings import table
from outcrop.store.keyring import Keyring

RULES_TIMEOUT = 0.5  # seconds after the first text; later texts do not wait for the rules
_PUNCTUATION = "\"'`<>()[]{}.,;:!?*„“”‚‘’«»"  # stripped from both ends of a word
_WORD_SEPARATORS = regex(r"[\s\"'`<>()\[\]{},;=|&]+|:(?=\S)")
# At least 20 characters with a digit and letters of both cases. Ticket names have no small letters.
_RANDOM_TOKEN = regex(r"\b(?=\w*[0-9])(?=\w*[A-Z])(?=\w*[a-z])\w{20,}\b", re.ASCII)
_WORD = regex(r"[\w%~+=-]+", re.ASCII)  # of an address
_NAMED_BY_DIGEST = {TargetKind.COMMIT, TargetKind.GIST}  # their addresses end in one

log = get_logger()


def mask_random_words(text: str) -> str:
    """Mask the words of an address that look random, as in paths of findings. It needs no rules."""

    def mask(match: re.Match[str]) -> str:
        hides = hides_in_paths(unquote(match[0]), is_named=False, is_password=False)
        return MASK if hides else match[0]

    return _WORD.sub(mask, text)


def mask_target(spec: TargetSpec) -> str:
    """Return the address of a target for the audit trail: without the query, and with random words masked."""
    return spec.shown if spec.kind in _NAMED_BY_DIGEST else mask_random_words(spec.shown)


class NoteCleaner:
    """Masks credentials in users' texts.

    The rules are loaded when the first text arrives: most processes get none, and compiling takes seconds.
    """

    def __init__(self, load: Callable[[], RuleSet], timeout: float = RULES_TIMEOUT) -> None:
        self._load = load
        self._timeout = timeout
        self._loading: asyncio.Task[RuleSet] | None = None
        self._deadline = 0.0

    async def clean(self, db: Connection, keys: Keyring, account_id: int, text: str) -> MaskedText:
        """Mask the credentials of the account's findings in a text, and those that the rules detect.

        Raise BadInputError, before any search, if the text has more than TEXT_LENGTH characters.
        """
        if len(text) > TEXT_LENGTH:
            raise BadInputError(f"a text must have at most {TEXT_LENGTH:,} characters")
        words = await asyncio.to_thread(_fingerprint_words, keys, text)
        types = await table.select_secret_types(db, account_id, list(words)) if words else {}
        ruleset = await self._wait_for_ruleset()
        return MaskedText(await asyncio.to_thread(_mask, text, words, types, ruleset))

    async def clean_note(
        self, db: Connection, keys: Keyring, account_id: int, note: str | None
    ) -> MaskedText | None:
        """Mask the credentials in a note and cut it to the length that is stored."""
        return None if note is None else cut_note(await self.clean(db, keys, account_id, note))

    async def _wait_for_ruleset(self) -> RuleSet | None:
        """Return the rules; None if they are not loaded in time or cannot be loaded."""
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
            self._deadline = monotonic() + self._timeout
        try:
            return await asyncio.wait_for(asyncio.shield(self._loading), self._deadline - monotonic())
        except TimeoutError:
            return None
        except (OutcropError, OSError) as error:
            log.error("rules_not_loaded", error=str(error))  # noqa: TRY400 - the message says it all
            self._loading = None  # the operator may correct the rules meanwhile, so the next text tries again
            return None


def _fingerprint_words(keys: Keyring, text: str) -> dict[bytes, Secret]:
    """Return the words of a text that may be credentials, by fingerprint."""
    return {keys.compute_fingerprint(word): word for word in map(Secret, _candidate_words(text))}


def _mask(
    text: str, words: Mapping[bytes, Secret], types: Mapping[bytes, str], ruleset: RuleSet | None
) -> str:
    """Mask the words of a text whose fingerprint has a type, longest first, and what the rules detect.

    Without rules, mask what looks random.
    """
    for fingerprint, type_ in sorted(types.items(), key=lambda item: -len(reveal(words[item[0]]))):
        text = Secret(reveal(words[fingerprint]), mask_all=is_password(type_)).masked_within(text)
    return _RANDOM_TOKEN.sub(MASK, text) if ruleset is None else mask_text(ruleset, text)


def _candidate_words(text: str) -> Iterator[str]:
    """Yield the words of a text that are long enough for a credential, with and without punctuation."""
    for spelling in {text, unquote(text)}:
        for word in {*spelling.split(), *_WORD_SEPARATORS.split(spelling)}:
            for candidate in {word, word.strip(_PUNCTUATION)}:
                if len(candidate) >= MIN_LENGTH_TO_MASK_IN_TEXT:
                    yield candidate
