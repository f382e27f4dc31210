"""Recognise placeholders: templates, words to fill in, published examples and test vectors.

`is_placeholder` runs the checks. No random token may be taken for a placeholder. So whatever is searched
for anywhere in a value is too long to be there by chance, or has characters that tokens do not have.
Shorter words count only if they are the complete value.
"""

import base64
import hashlib
import re
from functools import lru_cache
from operator import eq

from outcrop.lazy_regex import regex
from outcrop.scanner.patterns.re2_match import compile_regex, find_spans, matches_fully

# Texts that people write instead of a credential.
FILL_IN = (
    r"(?i:example|placeholder|redacted|change[_-]?(?:me|it|this)|dummy|foobar|notreal"
    r"|not[_-]?(?:a[_-]?)?(?:real|valid|secret)|invalid|sanitized"
    r"|your[_-]?(?:api|app|secret|token|key|pass|pwd|access|auth|client|own|account|user|db|database|bot"
    r"|private)|^your[_-]|[_-]your[_-]"
    r"|(?:replace|insert|paste|enter)[ _-]?(?:me|with|this|your|the|here)|put[ _-](?:your|the|here)"
    r"|(?:replace|insert|paste|enter)[ _-](?:random|real|actual|long|secret|token|key|pass)"
    r"|goes[_-]?here|bytes?[_-]long|(?:key|token|secret|password)[_-]here"
    r"|to[_-]be[_-](?:set|replaced|filled|changed|defined)|sample[_-]"
    r"|fake[_-]?(?:api|key|token|secret|pass|cred|value|auth|access|client)"
    r"|(?:^|[^0-9A-Za-z])(?:fake|mock|todo|fixme|none|null|undefined)(?:$|[^0-9A-Za-z])|x{6}|[_-](?:x{3,}|y{3,}|z{3,})(?:$|[^0-9A-Za-z])"
    r"|12345678|23456789|98765432|01234567|abcdefgh|bcdefghi|qwertyui|deadbeefdead|a1b2c3d4|1a2b3c4d|abcdef01"
    r"|abcdef12|c0ffeec0ffee|123e4567-e89b|550e8400-e29b)"
)
_FILL_IN = compile_regex(FILL_IN)
_SEQUENCE = regex(
    r"(?i)12345678|23456789|98765432|01234567|abcdefgh|bcdefghi|qwertyui|a1b2c3d4|1a2b3c4d|zyxwvuts"
)
_USUAL_FILL_IN = b"EXAMPLE"  # the most frequent text of FILL_IN in tokens, searched for first
_PUTTY_NO_ENCRYPTION = b"Encryption: none"  # a header of PuTTY keys: its "none" is no placeholder
_MAX_FILL_IN_LENGTH = 400  # a longer value, such as a key block, contains any word by chance
_MAX_ELLIPSIS_LENGTH = 80

# Something else fills the value in: a shell, a template engine, a format string.
_TEMPLATE = compile_regex(
    r"\$\{[^}]*\}|\$\{\{|^\$\(|^\$\{|^\${1,2}[A-Za-z_]\w*\${0,2}$|\{\{|\}\}|<%|%>|^%{1,2}\w+%{1,2}$"
    r"|^[!~]{1,2}[A-Z_]{2,}[!~]{1,2}$|^\[\[.*\]\]$|%\(\w+\)s|(?:^|[^\w%])%[sdv](?:$|[^\w])|#\{[^}]*\}"
    r"|\{[A-Za-z_][\w.]*\}|^\{\d?\}$"
    r"|^<[^<>]*>$|^\[[^\[\]]*\]$|^@{1,2}\w+@{1,2}$|^__[A-Z_]+__$|^%[sdv@]|\*{3}|^\*+$|_{8}|#{4}|^-+$"
    r"|\\\([A-Za-z_.]+\)"
)
# A template has one of these characters, or two underscores, or begins with a dash.
_TEMPLATE_CHARACTERS = b"${}<>%#[@*\\!~"
# Prefixes of passwords in LDAP and in Spring, which look like templates.
_PASSWORD_SCHEMES = ("{SHA}", "{SSHA}", "{MD5}", "{CRYPT}", "{noop}", "{bcrypt}")
# Eight equal characters. Not A or /: in base64 these are runs of zero bits or of one bits.
_EQUAL_CHARACTERS = regex(r"([^A/\s])\1{7}")
_REPEATED_PART = regex(r"(.{1,8})\1{3,}.{0,7}|(\w{2,8})(?:[-_.]\2){2,}", re.DOTALL)

# A complete value that is a word for the credential, or the name of the first user of a product.
_NOUN = (
    r"user(?:name)?|login|pass(?:word|wort|wd|phrase|code)?|passw|pwd|pw|secret|token|key|api[\s_.-]?key|auth"
    r"|cred(?:ential)?s?|value|string|text"
)
PLACEHOLDER_WORD = (
    r"(?i:(?:(?:my|your|the|our|some|any|an?|new|old|db|database|user|admin|root|test|default|real|actual"
    r"|plain|valid|wrong|bad|good|correct|super|app|api|client"
    r"|access|refresh|bearer|private|public|session|service|shared|secret|base64|encoded|encrypted|hashed|sql"
    r"|mysql|postgres|mongo|redis|smtp|ftp|http|proxy)[\s_.-]?)*"
    rf"(?:{_NOUN})(?:[\s_.-]?(?:{_NOUN}|here|id|name|hash|file|path))*[\s_.-]?[0-9]?[!?.:*]{{0,3}}"
    r"|(?:test|tester|testing|demo|foo|bar|baz|qux|abc|abcd|abcde|abcdef|asdf|asdfgh|qwerty|hello|temp|tmp"
    r"|blah)[\s_.-]?(?:[0-9]|123)?"
    r"|root|admin|administrator|guest|postgres|postgresql|mysql|mariadb|mongo|mongodb|mongoadmin|redis"
    r"|rabbitmq|rabbit|sa|minio|minioadmin|elastic|neo4j|odoo"
    r"|tomcat|vagrant|bitnami|cassandra|wildfly|jboss|weblogic|jenkins|zabbix|keycloak|airflow|superset|sonar"
    r"|kibana|wordpress|guacadmin|ubuntu|raspberry"
    r"|none|null|nil|true|false|undefined|empty|hidden|masked|removed|censored|todo|tbd|tba|fixme|n/?a|unset"
    r"|unknown|blank|optional|required|disabled|enabled"
    r"|localhost|anonymous|dev|development|prod|production|staging|local|x{1,5}|x-oauth-basic|x-token-auth"
    r"|0{1,8}|1{1,8}|1234?5?6?7?|654321|321|yes|no|on|off"
    r"|base64|plain|plaintext|public|default|change|replace|insert|random|nothing|something|anything|whatever"
    r"|thisisasecret)"
)
_PLACEHOLDER_WORD = compile_regex(PLACEHOLDER_WORD)
_MAX_WORD_LENGTH = 48
_BASE64 = regex(r"[0-9A-Za-z+/]{6,46}={0,2}")

# The claims of the JSON web tokens in tutorials: {"sub":"1234567890" and {"some":"payload"}.
_TUTORIAL_CLAIMS = regex(r"\.eyJ(?:zdWIiOiIxMjM0NTY3ODkw|zb21lIjoicGF5bG9hZCJ9)")

# SHA-256 (its first 16 hex digits) of values that issuers print in documentation or ship in emulators.
_PUBLISHED_DIGESTS = frozenset(
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
        "2ef2503d964e9668",  # NIST SP 800-38A, AES-128
        "c12ce25303a023aa",  # NIST SP 800-38A, AES-192
        "837e8e636d452b61",  # NIST SP 800-38A, AES-256
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
    """Return a value as text: decoded as UTF-8, or as Latin-1 if it is not UTF-8.

    So each value has exactly one text, and no value causes an error.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


@lru_cache(maxsize=1_024)  # the same placeholders occur again and again
def is_placeholder(value: str) -> bool:
    """Whether a value, such as a token or a complete key block, is a placeholder instead of a credential.

    The quickest checks run first. The result is cached.
    """
    raw = value.encode("utf-8", "surrogateescape")
    size = len(value)
    is_key_block = value.startswith("-----BEGIN")
    return (
        has_fill_in(raw.replace(_PUTTY_NO_ENCRYPTION, b""))
        or (not is_key_block and _is_template(value, raw))
        or _is_repeated(value)
        or ((is_key_block or size <= _MAX_ELLIPSIS_LENGTH) and ("..." in value or "…" in value))
        or (
            size <= _MAX_WORD_LENGTH
            and (_is_word(raw) or (size % 4 == 0 and _is_base64_of_placeholder(value)))
        )
        or _TUTORIAL_CLAIMS.search(value) is not None
        or _is_published(raw)
    )


def is_sequence(value: str) -> bool:
    """Whether a value counts along the digits or the alphabet, or repeats one part.

    So it looks like a credential of its issuer, but nobody has made it at random.
    """
    return (
        16 <= len(value) <= _MAX_FILL_IN_LENGTH
        and (_SEQUENCE.search(value) is not None or _is_repeated(value))
        and not value.startswith(("http", "-----"))
    )


def has_fill_in(raw: bytes) -> bool:
    """Whether a value contains a text that people write instead of a credential: `example`, `changeme`.

    False for values of over 400 bytes, which contain such a text by chance.
    """
    return len(raw) <= _MAX_FILL_IN_LENGTH and (
        _USUAL_FILL_IN in raw or find_spans(_FILL_IN, raw, 0, len(raw)) is not None
    )


def _is_template(value: str, raw: bytes) -> bool:
    """Whether a shell, a template engine or a format string replaces the value or a part of it: `${NAME}`.

    `raw` is `value` in UTF-8. Passwords with a scheme such as `{noop}` before them are no templates.
    """
    has_characters = (
        len(raw.translate(None, _TEMPLATE_CHARACTERS)) < len(raw) or b"__" in raw or raw[:1] == b"-"
    )
    return (
        has_characters
        and not value.startswith(_PASSWORD_SCHEMES)
        and find_spans(_TEMPLATE, raw, 0, len(raw)) is not None
    )


def _is_repeated(value: str) -> bool:
    """Whether a value has at most two different characters, eight equal ones in a row, or a repeated part.

    A repeated part has up to eight characters and fills the value, at least four times; with a hyphen, a dot
    or an underscore between, three times. Values of one or two different characters count from a length of 6
    to 400. Equal `A`, `/` or spaces in a row do not count.
    """
    if 6 <= len(value) <= _MAX_FILL_IN_LENGTH and len(set(value)) < 3:
        return True
    # Eight equal characters in a row include two neighbours among every fourth character.
    every_fourth = value[3::4]
    if any(map(eq, every_fourth, every_fourth[1:])) and _EQUAL_CHARACTERS.search(value):
        return True
    # A part repeats only if the first character occurs again after it.
    return value[:1] in value[1:10] and _REPEATED_PART.fullmatch(value) is not None


def _is_word(raw: bytes) -> bool:
    """Whether a value, or its part after the first colon (`user:password`), is a placeholder word.

    PLACEHOLDER_WORD must match all of it.
    """
    return matches_fully(_PLACEHOLDER_WORD, raw) or (
        b":" in raw and matches_fully(_PLACEHOLDER_WORD, raw.partition(b":")[2])
    )


def _is_base64_of_placeholder(value: str) -> bool:
    """Whether a value is base64 of a placeholder word, or of a text with a fill-in text.

    The caller checks that the length of the value is a multiple of four.
    """
    if not _BASE64.fullmatch(value):
        return False
    decoded = base64.b64decode(value)
    text = decoded.strip()
    return decoded.isascii() and text.decode().isprintable() and (_is_word(text) or has_fill_in(decoded))


def _is_published(raw: bytes) -> bool:
    """Whether a value is an example that an issuer publishes, by its digest in _PUBLISHED_DIGESTS.

    If the value is a JSON web token, its signature alone is looked up too.
    """
    if hashlib.sha256(raw).hexdigest()[:16] in _PUBLISHED_DIGESTS:
        return True
    if not raw.startswith(b"eyJ"):
        return False
    signature = raw.rpartition(b".")[2]
    return hashlib.sha256(signature).hexdigest()[:16] in _PUBLISHED_DIGESTS
