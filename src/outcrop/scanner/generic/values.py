"""Classify values by their shape: a reference, a location, code, a number, hex digits, random characters.

`shape_of` returns the first shape of SHAPE_PATTERNS that matches the complete value. The other functions
read values that need their name or the text around them: identifiers, package checksums, arrays of bytes.
"""

import re
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]

from outcrop.lazy_regex import regex


class Shape(StrEnum):
    """The form of a value. SHAPE_PATTERNS has the patterns of each member; the first match counts."""

    KNOWN_PUBLIC = "known public format"
    REFERENCE = "reference"
    PUBLIC = "public"
    ENCRYPTED = "encrypted or hashed"
    UUID = "uuid"
    LETTERS = "letters"
    NUMBER = "number"
    LOCATION = "location"
    HEX = "hex"
    WORDS = "words"
    CODE = "code"
    PHRASE = "phrase"
    NUMBERED_WORDS = "words and numbers"
    ALPHANUMERIC = "letters and digits mixed"
    OTHER = "other"


_FILE_AND_HOST_ENDINGS = (
    "json|ya?ml|txt|py|jsx?|tsx?|go|rb|php|java|cs|html?|pem|key|crt|cer|p12|pfx|jks|keystore|env|conf|cfg"
    "|ini|toml|properties|xml|md|sh|png|svg|jpe?g|gif|css|log|sock|gz|zip|exe|dll|so|bin|dat|db|sql|csv|pub"
    "|asc|kdbx|lock|war|jar|ova|tgz|whl|com|org|net|io|app|dev|cloud|local|internal|localdomain"
)
# Each pattern matches a complete value. The order counts: a value has the first shape that matches.
SHAPE_PATTERNS: dict[Shape, tuple[str, ...]] = {
    # Shown by its prefix to be no secret, however random the rest looks.
    Shape.KNOWN_PUBLIC: (
        r"pk_(?:live|test)_[0-9A-Za-z]{8,}",  # a publishable key of Stripe
        r"SCRAM-SHA-(?:1|256|512)\$.*",  # a password hash of PostgreSQL
        r"md5[0-9a-f]{32}",  # an older password hash of PostgreSQL
        r"\*[0-9A-F]{40}",  # a password hash of MySQL
        r"age1[02-9ac-hj-np-z]{58}",  # a public key of age
        r"0x[0-9A-Fa-f]{40}",  # the address of an account or a contract of a blockchain
        r"A(?:IDA|ROA|GPA|IPA|NPA|NVA|SCA)[A-Z0-9]{16,17}",  # the id of an AWS user, role or group
    ),
    # Refers to the value instead: a template, a variable, a vault. Or markup of a manual page, or an option.
    Shape.REFERENCE: (
        r".*(?:\$\{|\{\{|\}\}|#\{|<%|%>|%\(|\$\().*",
        r"""\$[A-Za-z_][\w.:>"'\[\]-]*""",
        r"%[A-Za-z_%]\w*%?",
        r"%[\w.-]+%.*",
        r".*#[A-Za-z_]+#.*",
        r"<[^<>]*>?",
        r"\[[^\[\]]*\]?",
        r"\{[^{}]*\}?",
        r"@[\w.-]+@",
        r"__\w+__",
        (
            r"(?:arn|crn|vault|op|ssm|secret|env|file|urn|ref|config|keyring|sops|aws|gcp|azure|kms|classpath"
            r"|projects|secrets)[:/+].*"
        ),
        r".*(?:^|\W)%[asdrvq@](?:\W.*|$)",
        r".*\{[A-Za-z_0-9.:!]*\}.*",
        r".*%\[[0-9]\][a-z].*",
        r"(?:process\.env|os\.environ|env\.|System\.|ENV\[).*",
        r"\{?[A-Za-z_][\w.]*\}",
        r".*\*{3}.*",
        r".*\.\.\..*",
        r"!!?[A-Za-z_]+(?:[ /:].*)?",
        r"&#?\w+;.*",
        r".*&lt;.*",
        r"""\\[(\"'$n].*""",
        r"\$[A-Za-z_]\w* .*",
        r"\\(?:[*\[&]|f[BIRP(]).*",
        r".*\\f[BIRP]",
        r".*\\(?:&.*)?",
        r"--[a-z].*",
        r"-[a-z]+=.*",
    ),
    # Public by its content: a digest with its name, a public key, an image, a certificate, a licence, an OID.
    Shape.PUBLIC: (
        r"(?i:(?:hmac-)?(?:sha|md)[0-9]{1,3}[:=-]).*",
        r"(?:ssh-|ecdsa-sha2|data:|image/|h1:).*",
        r"AAAA[BEC][3-9][A-Za-z0-9+/]{4}.*",
        r"(?:iVBORw0KGgo|/9j/4AA|R0lGOD|PHN2Zy|d09GR|AAEAAAA|UEsDB|H4sI|PD94bW|JVBERi|PCFET0).*",
        r"MI[IG][A-Z][A-Za-z0-9+/]{2}A[NO][BA].*",
        r"MF[kY]wE[wA]YHKoZIzj0.*",
        r"MCowBQYDK2V.*",
        r".*aws4_request.*",
        r"00240000048000.*",
        r"[ACNOUX][A-Z2-7]{55}",
        r"(?i:(?:scram|pbkdf2?|aes|rsa|hmac|ecdsa|sha)(?:[-_][a-z0-9]{2,6}){1,3})",
        r".*GPL[-_v]?[0-9].*",
        r"(?:MIT|ISC|BSD|Apache|MPL|EUPL|OFL|CC-BY|Zlib)(?:[-_ /+].*|[0-9.]*)",
        r"[0-2](?:\.[0-9]+){5,}",
        (
            r"(?:[A-Z0-9]+[-_])*(?:SHA|AES|RSA|GCM|CBC|HMAC|OAEP|ECDSA|ECDHE|ECDH|EDDSA|CHACHA20|MD5|PBKDF2?"
            r"|RS|HS|ES|PS|X)[0-9]{0,5}(?:[-_:+][A-Za-z0-9]+)*"
        ),
    ),
    Shape.ENCRYPTED: (
        r"ENC[(\[].*",
        r"\$(?:2[abxy]?|[1569y]|apr1|argon2\w*|pbkdf2[\w-]*|scrypt)\$.*",
        r"\{(?:SHA|SSHA|CRYPT|bcrypt|cipher|MD5)\}.*",
        r"(?:pbkdf2|bcrypt|argon2|scrypt|sha1|sha256|md5)\w*\$.*",
        r"\{[A-Za-z0-9+/]{20,}={0,2}\}",
        r"vault:v[0-9]+:.*",
        r"Ag[A-Za-z0-9+/]{300,}={0,2}",
        r"U2FsdGVkX1.*",
        r"AQIC[A-Za-z0-9+/=]{60,}",
        r"gAAAAA[A-Za-z0-9_-]{60,}={0,2}",
        r"[0-9]\.[A-Za-z0-9+/]{22}==(?:\|[A-Za-z0-9+/]+={0,2})*",  # type, initial vector, text, MAC
    ),
    Shape.UUID: (r"\{?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\}?",),
    # Only ASCII letters.
    Shape.LETTERS: (r"[A-Za-z]+",),
    # A number, a date, a version, a size, a colour.
    Shape.NUMBER: (
        (
            r"[-+]?[0-9][0-9.,:_/+\-TZ ]*"
            r"(?:[kKMGT]?i?[bB]|ms|s|m|h|d|px|em|rem|pt|%|[eE][-+]?[0-9]+|L|[uU][lL]{0,2}|f|n)?"
        ),
        r"0x[0-9A-Fa-f]{1,16}",
        r"v?[0-9]+(?:\.[0-9]+)+(?:[.+-][0-9A-Za-z.*+-]+)?",
        r"[0-9]+[A-Za-z]{1,2}",
        r"[~^<>=]{1,2}[0-9][\w.*-]*",
        r"#[0-9A-Fa-f]{3,8}",
    ),
    # A path, a URL, an email address, a file, a host.
    Shape.LOCATION: (
        r"[A-Za-z][A-Za-z0-9+.-]{0,20}:/.*",
        r"(?:\.{1,2}|~|[A-Za-z]:)[/\\].*",
        r"/(?:[a-z_.{:][\w.@%+~{}:*-]*/)*[a-z_.{:][\w.@%+~{}:*-]*(?:\?.*)?/?",
        rf"[\w./:@\\-]*\.(?:{_FILE_AND_HOST_ENDINGS})(?::[0-9]+)?(?:[/?].*)?",
        r"[\w.+-]+@[\w-]+(?:\.[A-Za-z][\w-]*)+",
        r"[a-z0-9-]+(?:\.[a-z0-9-]+)+:[0-9]+",
        r"localhost.*",
        r"[A-Za-z_.-]+(?:/[A-Za-z_.-]+[0-9]{0,3}){2,}/?",
        (
            r"/(?:bin|dev|etc|home|mnt|opt|proc|root|run|srv|tmp|usr|var|Applications|Library|System|Users"
            r"|Volumes)/.*"
        ),
        r"[a-z]+\\[a-z].*",
    ),
    Shape.HEX: (
        r"(?:0x|base64:|hex:)?[0-9a-f]{12,}",
        r"(?:0x)?[0-9A-F]{12,}",
        r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5,}",
        r"(?:\\x[0-9A-Fa-f]{2}){6,}",
    ),
    # Letters with punctuation between them: a label, a name of several words.
    Shape.WORDS: (
        r"[A-Za-z\x80-\xff]+(?:['_.,:;/&+()\-!?*#@~|]+[A-Za-z\x80-\xff]+)*[.:?!*=,;&#_\-]{0,3}",
        r"[_#.@*$:~-]{1,3}[A-Za-z\x80-\xff]+(?:[-_.:/][A-Za-z]+)*[-_:=]?",
        r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+",
    ),
    # A call, an expression, a regular expression.
    Shape.CODE: (
        r'[a-z]+:".*"',
        r".*(?:a-z|A-Z|0-9)(?:a-z|A-Z|0-9|_|\\).*",
        r"[^A-Za-z0-9\x80-\xff]*",
        r"[a-z_]+(?::[\w,.]+)?(?:\|[a-z_]+(?::[\w,.]+)?)+",
        r"[A-Za-z_$@&*!][\w.$:>-]*[(\[].*",
        r".*(?:=>|->|::|&&|\|\||\)\.|\(\)|\);|\}\)|</?[A-Za-z]|\+\+|===|!==|\?\.).*",
        r"\^.*",
        r".*\\[dwsDWSbBnrtx0].*",
        r".*\[\^?[A-Za-z0-9]-[A-Za-z0-9].*",
        r"[&*][A-Za-z_]\w*",
        r"[)\]},;(|].*",
        r"\+.*\+",
        r"[?&:=]\w+=.*",
        r".*[({\[,|&<]",
        r"[A-Za-z_.-]+=",
        r"[\w.-]*[})\]]+[;,)]*",
        r"[A-Za-z_][\w.-]*(?:=|==|!=|:=)[A-Za-z_.]+\(?",
        r"[A-Za-z_]+[0-9]{0,2}(?:\.[A-Za-z_]+[0-9]{0,2})+[;,)]*",
        r"\w+=\w+(?:[&;,]\w+=\w*)+",
        r"@[A-Za-z_][A-Za-z_./-]*",
        r"(?:true|false|null|nil|None|undefined)\b.*",
        r"[0-9]{1,3};.*",
    ),
    # Text with a space.
    Shape.PHRASE: (r".* .*",),
    # Words with a number after them or between them.
    Shape.NUMBERED_WORDS: (
        (
            r"[#.@_]{0,2}[A-Za-z]{2,}[0-9]{0,4}"
            r"(?:[-_.:/+]{1,2}(?:[A-Za-z]{2,}[0-9]{0,4}|v?[0-9]{1,4}|[A-Za-z]))*[.:!?]?"
        ),
        r"[A-Za-z]{3,}[0-9]{1,2}[A-Za-z]{3,}[0-9]{0,2}",
    ),
    # Letters and digits, mixed as generators do.
    Shape.ALPHANUMERIC: (r"[A-Za-z0-9]+={0,2}",),
    # Anything else: letters, digits and special characters.
    Shape.OTHER: (r"(?s:.*)",),
}

_KEY_FINGERPRINT = regex(rb"(?:0x)?(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{16}|[0-9A-Fa-f]{32}|[0-9A-Fa-f]{40})")
_GPG_KEY_NAME = regex(rb"(?i:(?:gpg|pgp)_?keys?)$")
_UUID = regex(rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_ENTRY_KEY_NAMES = frozenset({b"key", b"keys", b"_key"})  # the key of a map entry or of a list element
_SHA1 = regex(rb"[0-9a-f]{40}")
_POD_CHECKSUMS = b"SPEC CHECKSUMS:"  # heading in Podfile.lock; below it, each package has its SHA-1
_MAX_BYTES_BELOW_HEADING = 32_768

_MAX_BYTES_BEFORE_COMMA = 16  # from the opening brace of an array to the end of its first comma
_MAX_ARRAY_BYTES = 1_600  # room for 256 numbers such as `0xff, `
_NUMBER = rb"(?:0x[0-9A-Fa-f]{1,2}|[0-9]{1,3})"
_ARRAY = regex(rb"\{\s*(%b(?:\s*,\s*%b){7,255})\s*,?\s*\}" % (_NUMBER, _NUMBER))


class ByteArray(NamedTuple):
    """An array literal of numbers below 256: the span of its numbers in the text, and the bytes they are."""

    start: int
    end: int
    content: bytes


@lru_cache(maxsize=16_384)
def shape_of(value: bytes) -> Shape:
    """Return the first shape in SHAPE_PATTERNS with a pattern that matches the complete value.

    Every value has a shape: OTHER matches all. RE2 matches all patterns at once. The result is cached.
    """
    patterns, shapes = _compile_shapes()
    shape: Shape = shapes[min(patterns.Match(value))]
    return shape


@cache
def _compile_shapes() -> tuple[Any, list[Shape]]:
    """Return an RE2 set of all patterns in SHAPE_PATTERNS, and the shape of each pattern number in the set.

    The set is compiled on first use.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    patterns = re2.Set.FullMatchSet(options)
    shapes = []
    for shape, shape_patterns in SHAPE_PATTERNS.items():
        for pattern in shape_patterns:
            patterns.Add(pattern.encode("latin-1"))
            shapes.append(shape)
    patterns.Compile()
    return patterns, shapes


def is_identifier(name: bytes, value: bytes) -> bool:
    """Whether a value only identifies something: a UUID with the name `key`, or the id of a GPG key.

    A UUID counts with the names `key`, `keys` and `_key`. The id of a GPG key has 8, 16, 32 or 40 hexadecimal
    digits and a name that ends like `gpg_key`.
    """
    if _UUID.fullmatch(value):
        return name.lower() in _ENTRY_KEY_NAMES
    return _GPG_KEY_NAME.search(name) is not None and _KEY_FINGERPRINT.fullmatch(value) is not None


def is_pod_checksum(data: bytes, start: int, end: int) -> bool:
    """Whether the value from `start` to `end` is the SHA-1 of a package in a Podfile.lock of CocoaPods.

    That is so if it has 40 lower-case hexadecimal digits and is at most _MAX_BYTES_BELOW_HEADING below `SPEC
    CHECKSUMS:`, with no empty line between them.
    """
    if end - start != 40 or not _SHA1.fullmatch(data, start, end):
        return False
    heading = data.rfind(_POD_CHECKSUMS, max(0, start - _MAX_BYTES_BELOW_HEADING), start)
    return heading >= 0 and data.find(b"\n\n", heading, start) < 0


def read_byte_array(data: bytes, comma_end: int) -> ByteArray | None:
    """Return the array of bytes in braces whose first comma ends at `comma_end`; None if there is none.

    An array has 8 to 256 decimal or hexadecimal numbers below 256: `{0x1f, 0x8b, ...}`.
    """
    opening = data.rfind(b"{", max(0, comma_end - _MAX_BYTES_BEFORE_COMMA), comma_end)
    array = _ARRAY.match(data, opening, opening + _MAX_ARRAY_BYTES) if opening >= 0 else None
    if array is None:
        return None
    numbers = [int(number, 16 if number[:2] == b"0x" else 10) for number in re.findall(_NUMBER, array[1])]
    return ByteArray(*array.span(1), bytes(numbers)) if max(numbers) < 256 else None
