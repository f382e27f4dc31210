"""Every credential of a look is masked in what is told of the others: one may stand in another's path."""

from collections.abc import Iterable
from urllib.parse import unquote

from outcrop.domain.secret import MIN_LENGTH_TO_MASK_IN_TEXT, Secret, reveal


class SecretMasker:
    """Masks the credentials that stand in some texts. Few do, so each is looked for in all texts at once first."""

    def __init__(self, secrets: Iterable[Secret], texts: Iterable[str]) -> None:
        joined = "\0".join(set(texts))
        plain = unquote(joined).replace("+", " ")
        values = {
            reveal(secret): secret for secret in secrets if len(reveal(secret)) >= MIN_LENGTH_TO_MASK_IN_TEXT
        }
        # One with a percent sign in it may be written in more ways than these.
        there = [
            value for value in values if "%" in value or value in joined or value.replace("+", " ") in plain
        ]
        # The longest first: a value may be a part of another.
        self._secrets = [values[value] for value in sorted(there, key=lambda value: (-len(value), value))]

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = secret.masked_within(text)
        return text
