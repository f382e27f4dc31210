"""Mask the credentials of a scan in the texts of its other findings: one may be part of another's path."""

from collections.abc import Iterable
from urllib.parse import unquote

from outcrop.domain.secret import MIN_LENGTH_TO_MASK_IN_TEXT, Secret, reveal


class SecretMasker:
    """Masks credentials in texts. `texts` are all texts that will be masked.

    Few texts contain a credential, so each credential is first searched for in all of them at once.
    """

    def __init__(self, secrets: Iterable[Secret], texts: Iterable[str]) -> None:
        joined = "\0".join(set(texts))
        unquoted = unquote(joined).replace("+", " ")
        values = {
            reveal(secret): secret for secret in secrets if len(reveal(secret)) >= MIN_LENGTH_TO_MASK_IN_TEXT
        }
        # A value with a percent sign has more spellings than the two that are searched for here.
        found = [
            value
            for value in values
            if "%" in value or value in joined or value.replace("+", " ") in unquoted
        ]
        # The longest first: a value may be a part of another.
        self._secrets = [values[value] for value in sorted(found, key=lambda value: (-len(value), value))]

    def mask(self, text: str) -> str:
        """Return a text with the credentials in it masked.

        The text must be one of `texts`, the credentials are `secrets` of the constructor. Credentials shorter
        than MIN_LENGTH_TO_MASK_IN_TEXT are not masked.
        """
        for secret in self._secrets:
            text = secret.masked_within(text)
        return text
