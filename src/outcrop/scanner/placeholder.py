"""Values that only stand for a credential: templates, fill-ins, published examples and test vectors."""

import hashlib
import re

# Words people put where a credential would go; the short ones only count in short values, where chance does not make them.
_WORDS = re.compile(
    r"example|sample[_-]|placeholder|change[_-]?(?:me|it|this)|redacted|(?:your|my)[_-]?(?:api|secret|token|key|pass|access|auth|client|own|account)"
    r"|your[_-]|replace[_-]?(?:me|with|this)?|insert[_-]?|goes[_-]?here|notreal|not[_-]?a[_-]?real|not[_-]?valid|invalid|dummy|foobar|put[_-]your|to[_-]?be[_-]?"
    r"|12345678|23456789|abcdefgh|bcdefghi|qwertyui|01234567|98765432|deadbeef|(?:0123456789abcdef)",
    re.IGNORECASE,
)
_SHORT_WORDS = re.compile(r"fake|xxxx|todo|none|null|undefined|mock|\*\*\*|\.\.\.|###|___", re.IGNORECASE)
_SHORT = 80
_LONG = 400  # a key block or a long token contains any word by chance
_TEMPLATE = re.compile(
    r"""^\$\{|^\$\(|\$\{[^}]*\}|^\$[A-Za-z_]\w*$|\{\{|\}\}|<%|%>|^%[A-Za-z_]+%$|%\(\w+\)s|^%[sdv]$|^#\{|^<[^<>]*>$|^\[[^\[\]]*\]$|^\{[\w.\s-]*\}$|^@\w+@$|^__\w+__$|^\*+$"""
)
_RUN = re.compile(r"([^A\s])\1{7,}")  # base64 of zero bytes is a run of A
_CYCLE = re.compile(r"^(.{1,6})\1{3,}.{0,5}$", re.DOTALL)

# The first 16 hexadecimal digits of the SHA-256 of values that issuers print in their documentation.
_PUBLISHED: frozenset[str] = frozenset()


def is_placeholder(value: str) -> bool:
    """Tell whether a value is a stand-in rather than a credential."""
    if _TEMPLATE.search(value) or _RUN.search(value) or _CYCLE.match(value):
        return True
    if len(value) <= _LONG and _WORDS.search(value):
        return True
    if len(value) <= _SHORT and _SHORT_WORDS.search(value):
        return True
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:16] in _PUBLISHED
