"""Values that only stand for a credential: templates, fill-ins, published examples and test vectors.

A random token must never be taken for one. Whatever is looked for anywhere in a value is therefore too long to come about by
chance, or needs characters that tokens have none of; shorter words count only when they are the whole value.
"""

import base64
import hashlib
import re
from functools import lru_cache
from operator import eq

from outcrop.scanner.patterns.re2_match import compile_regex, find_spans, matches_fully

# What people write where a credential would go.
FILL_IN = (
    r"(?i:example|placeholder|redacted|change[_-]?(?:me|it|this)|dummy|foobar|notreal|not[_-]?(?:a[_-]?)?(?:real|valid|secret)|invalid|sanitized"
    r"|your[_-]?(?:api|app|secret|token|key|pass|pwd|access|auth|client|own|account|user|db|database|bot|private)|^your[_-]|[_-]your[_-]"
    r"|(?:replace|insert|paste|enter)[ _-]?(?:me|with|this|your|the|here)|put[ _-](?:your|the|here)"
    r"|goes[_-]?here|bytes?[_-]long|(?:key|token|secret|password)[_-]here"
    r"|to[_-]be[_-](?:set|replaced|filled|changed|defined)|sample[_-]|fake[_-]?(?:api|key|token|secret|pass|cred|value|auth|access|client)"
    r"|(?:^|[^0-9A-Za-z])(?:fake|mock|todo|fixme|none|null|undefined)(?:$|[^0-9A-Za-z])|x{6}"
    r"|12345678|23456789|98765432|01234567|abcdefgh|bcdefghi|qwertyui|deadbeefdead|a1b2c3d4|1a2b3c4d|abcdef01|abcdef12|c0ffeec0ffee)"
)
_FILL_IN = compile_regex(FILL_IN)
_MOSTLY = b"EXAMPLE"  # what it mostly is in a token
_UNSEALED = b"Encryption: none"  # in a key of PuTTY's, which it does not make a stand-in
_LONG = 400  # a key block contains any word by chance
_SHORT_ELLIPSIS = 80

# Something else fills the value in: a shell, a template engine, a format string.
_TEMPLATE = compile_regex(
    r"\$\{[^}]*\}|\$\{\{|^\$\(|^\$\{|^\${1,2}[A-Za-z_]\w*\${0,2}$|\{\{|\}\}|<%|%>|^%{1,2}\w+%{1,2}$|^[!~]{1,2}[A-Z_]{2,}[!~]{1,2}$|^\[\[.*\]\]$|%\(\w+\)s|(?:^|[^\w%])%[sdv](?:$|[^\w])|#\{[^}]*\}|\{[A-Za-z_][\w.]*\}|^\{\d?\}$"
    r"|^<[^<>]*>$|^\[[^\[\]]*\]$|^@{1,2}\w+@{1,2}$|^__[A-Z_]+__$|^%[sdv@]|\*{3}|^\*+$|_{8}|#{4}|^-+$|\\\([A-Za-z_.]+\)"
)
_SIGNS = (
    b"${}<>%#[@*\\!~"  # one of which every template has, or an underscore twice, or it begins with a dash
)
_HASH = (
    "{SHA}",
    "{SSHA}",
    "{MD5}",
    "{CRYPT}",
    "{noop}",
    "{bcrypt}",
)  # how directories begin a password, not a template
_RUN = re.compile(r"([^A/\s])\1{7}")  # base64 of bytes without or with every bit is a run of A or of strokes
_CYCLE = re.compile(r"(.{1,6})\1{3,}.{0,5}", re.DOTALL)

# The whole value is a word for what should stand there, or the name that installers give to the first user.
_NOUN = (
    r"user(?:name)?|login|pass(?:word|wort|wd|phrase|code)?|passw|pwd|pw|secret|token|key|api[\s_.-]?key|auth"
    r"|cred(?:ential)?s?|value|string|text"
)
WORD = (
    r"(?i:(?:(?:my|your|the|our|some|any|an?|new|old|db|database|user|admin|root|test|default|real|actual|plain|valid|wrong|bad|good|correct|super|app|api|client"
    r"|access|refresh|bearer|private|public|session|service|shared|secret|base64|encoded|encrypted|hashed|sql|mysql|postgres|mongo|redis|smtp|ftp|http|proxy)[\s_.-]?)*"
    rf"(?:{_NOUN})(?:[\s_.-]?(?:{_NOUN}|here|id|name|hash|file|path))*[\s_.-]?[0-9]?[!?.:*]{{0,3}}"
    r"|(?:test|tester|testing|demo|foo|bar|baz|qux|abc|abcd|abcde|abcdef|asdf|asdfgh|qwerty|hello|temp|tmp|blah)[\s_.-]?(?:[0-9]|123)?"
    r"|root|admin|administrator|guest|postgres|postgresql|mysql|mariadb|mongo|mongodb|mongoadmin|redis|rabbitmq|rabbit|sa|minio|minioadmin|elastic|neo4j|odoo"
    r"|tomcat|vagrant|bitnami|cassandra|wildfly|jboss|weblogic|jenkins|zabbix|keycloak|airflow|superset|sonar|kibana|wordpress|guacadmin|ubuntu|raspberry"
    r"|none|null|nil|true|false|undefined|empty|hidden|masked|removed|censored|todo|tbd|tba|fixme|n/?a|unset|unknown|blank|optional|required|disabled|enabled"
    r"|localhost|anonymous|dev|development|prod|production|staging|local|x{1,5}|x-oauth-basic|x-token-auth|0{1,8}|1{1,8}|1234?5?6?7?|654321|321|yes|no|on|off"
    r"|base64|plain|plaintext|public|default|change|replace|insert|random|nothing|something|anything|whatever|thisisasecret)"
)
_WORD = compile_regex(WORD)
_WORDS_UP_TO = 48
_BASE64 = re.compile(r"[0-9A-Za-z+/]{6,46}={0,2}")

# The claims that everybody's first web token has: {"sub":"1234567890" and {"some":"payload"}.
_SAMPLE_CLAIMS = re.compile(r"\.eyJ(?:zdWIiOiIxMjM0NTY3ODkw|zb21lIjoicGF5bG9hZCJ9)")

# The first 16 hexadecimal digits of the SHA-256 of values that issuers print in their documentation or ship in their emulators.
_PUBLISHED = frozenset(
    {
        "1a5d44a2dca19669",  # AWS documentation
        "78314b11be2e5815",  # AWS documentation
        "c6ea27c534f993d3",  # AWS documentation
        "e21b597ba6b9cafa",  # AWS documentation
        "051d093c4bdedbf2",  # jwt.io, the signature
        "08831f80b56414a9",  # jwt.io, the older signature
        "13d31e961a1ad8ec",  # RFC 7515 and RFC 7636
        "b8e148545b13c78b",  # RFC 6750
        "e30592c37ff33ddb",  # RFC 7617
        "2cafc0970149a84f",  # Stripe documentation
        "f2d6ca16515033e5",  # Stripe documentation
        "0011cc25eb432071",  # Azure storage emulator
        "aa6547439583c3a2",  # Azure Cosmos DB emulator
        "f5e95c9954635b65",  # reCAPTCHA test key, secret
        "03b970ed8171d73b",  # reCAPTCHA test key, site
        "bf1725a8f98bea37",  # Supabase local stack, anon
        "70541e07fd4f900b",  # Supabase local stack, service role
    }
)


def decode_value(raw: bytes) -> str:
    """Read a value as UTF-8, else byte for byte, so that every value has exactly one text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


@lru_cache(maxsize=1_024)  # stand-ins come again and again
def is_placeholder(value: str) -> bool:
    """Tell whether a value is a stand-in rather than a credential. What is quickly ruled out is not looked for."""
    raw = value.encode("utf-8", "surrogateescape")
    size = len(value)
    if is_filled_in(raw.replace(_UNSEALED, b"")) or (6 <= size <= _LONG and len(set(value)) < 3):
        return True
    block = value.startswith("-----BEGIN")
    if (
        _may_be_template(raw)
        and not block
        and not value.startswith(_HASH)
        and find_spans(_TEMPLATE, raw, 0, len(raw))
    ) or _repeats(value):
        return True
    if (block or size <= _SHORT_ELLIPSIS) and ("..." in value or "…" in value):
        return True
    if size <= _WORDS_UP_TO and (_is_word(raw) or (size % 4 == 0 and _is_encoded_word(value))):
        return True
    return (
        _SAMPLE_CLAIMS.search(value) is not None
        or _published(raw)
        or (value.startswith("eyJ") and _published(raw.rpartition(b".")[2]))
    )


def is_filled_in(raw: bytes) -> bool:
    """Tell whether a value says that another one goes in its place."""
    return len(raw) <= _LONG and (_MOSTLY in raw or find_spans(_FILL_IN, raw, 0, len(raw)) is not None)


def _may_be_template(raw: bytes) -> bool:
    """Tell whether a value has a sign without which it is no template."""
    return len(raw.translate(None, _SIGNS)) < len(raw) or b"__" in raw or raw[:1] == b"-"


def _repeats(value: str) -> bool:
    """Tell whether a value is one sign many times, or a few signs again and again."""
    # Of eight signs in a row, two stand side by side among every fourth sign; what comes again does so within six.
    some = value[3::4]
    if any(map(eq, some, some[1:])) and _RUN.search(value):
        return True
    return value[:1] in value[1:7] and _CYCLE.fullmatch(value) is not None


def _is_word(raw: bytes) -> bool:
    """Tell whether a value is only a word; a pair of user and password counts by its password."""
    return matches_fully(_WORD, raw) or (b":" in raw and matches_fully(_WORD, raw.partition(b":")[2]))


def _is_encoded_word(value: str) -> bool:
    if not _BASE64.fullmatch(value):
        return False
    raw = base64.b64decode(value)
    text = raw.strip()
    return raw.isascii() and text.decode().isprintable() and (_is_word(text) or is_filled_in(raw))


def _published(raw: bytes) -> bool:
    return hashlib.sha256(raw).hexdigest()[:16] in _PUBLISHED
