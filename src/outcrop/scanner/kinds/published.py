"""Credentials that an issuer or a standard prints in its documentation, and tokens that no issuer made."""

import hashlib
import re

from outcrop.lazy_regex import regex
from outcrop.scanner.kinds.kind import Kind, Sample

PUBLISHED = Kind("published", "an example that a standard, an issuer or a tool publishes")
MALFORMED = Kind("malformed-token", "has the prefix of a known issuer, but not the form of its tokens")
SPELLED_WORDS = Kind(
    "spelled-words", "words in another spelling: as base64, as escapes or as hexadecimal digits"
)

_DIGESTS: frozenset[str] = frozenset()
_PREFIX = regex(
    r"(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk_(?:live|test)_|rk_(?:live|test)_|pk_(?:live|test)_|AKIA|ASIA|AIza|ya29\.|npm_"
    r"|pypi-|SG\.|dop_v1_|shpat_|hvs\.|dckr_pat_|sk-(?:proj-|ant-)|lin_api_|figd_|glc_|glsa_|NRAK-|EAAC|EAAB|hf_|rubygems_)[\w.-]*"
)
_ESCAPES = regex(r"(?:\\x[0-9A-Fa-f]{2}|\\[0-7]{3}){6,}")


def is_published(sample: Sample) -> bool:
    """Whether the value is one of the published examples, by its digest."""
    return hashlib.sha256(sample.value.encode("utf-8", "surrogatepass")).hexdigest()[:16] in _DIGESTS


def is_malformed_token(sample: Sample) -> bool:
    """Whether a value that no rule of its issuer has found begins with the prefix of that issuer."""
    return sample.is_generic and _PREFIX.fullmatch(sample.value) is not None


def is_spelled_words(sample: Sample) -> bool:
    """Whether escapes, hexadecimal digits or base64 are the spelling of plain words."""
    value = sample.value
    if not sample.is_generic or len(value) > 400:
        return False
    if _ESCAPES.fullmatch(value):
        text = bytes(int(part, 16) for part in re.findall(r"\\x([0-9A-Fa-f]{2})", value))
    elif re.fullmatch(r"(?:[0-9A-Fa-f]{2}){6,}", value):
        text = bytes.fromhex(value)
    else:
        return False
    return bool(text) and re.fullmatch(rb"[A-Za-z][a-z]*(?:[ _-][A-Za-z]+)*[0-9]{0,4}[.!]?", text) is not None
