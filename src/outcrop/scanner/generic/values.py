"""What a value is by its shape: a path, an address, a name, code, a number, a digest, or nothing of the kind."""

import re
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

# Endings of files and hosts.
_FILES = (
    "json|ya?ml|txt|py|jsx?|tsx?|go|rb|php|java|cs|html?|pem|key|crt|cer|p12|pfx|jks|keystore|env|conf|cfg|ini|toml"
    "|properties|xml|md|sh|png|svg|jpe?g|gif|css|log|sock|gz|zip|exe|dll|so|bin|dat|db|sql|csv|pub|asc|kdbx|lock|war|jar|ova"
    "|tgz|whl|com|org|net|io|app|dev|cloud|local|internal|localdomain"
)
SHAPES: dict[str, tuple[str, ...]] = {
    # Tells by its beginning that it opens nothing, however much it looks drawn by chance: a key that pages show, what a database
    # keeps of a password, the public half of a pair.
    "known": (
        r"pk_(?:live|test)_[0-9A-Za-z]{8,}",
        r"SCRAM-SHA-(?:1|256|512)\$.*",
        r"md5[0-9a-f]{32}",
        r"\*[0-9A-F]{40}",
        r"age1[02-9ac-hj-np-z]{58}",
        r"0x[0-9A-Fa-f]{40}",  # where a contract or an account of a chain is
        r"A(?:IDA|ROA|GPA|IPA|NPA|NVA|SCA)[A-Z0-9]{16,17}",  # who somebody is at AWS
    ),
    # Says where the value stands: a template, a variable, a vault; or is the markup of a manual page, or the next option.
    "reference": (
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
        r"(?:arn|vault|op|ssm|secret|env|file|urn|ref|config|keyring|sops|aws|gcp|azure|kms|classpath|projects|secrets)[:/+].*",
        r".*(?:^|\W)%[asdrvq@](?:\W.*|$)",
        r".*\{[A-Za-z_0-9.:!]*\}.*",
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
    # Public by what it is: a digest with its name, a public key, an image, a certificate, a licence, an object identifier.
    "public": (
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
        r"(?:[A-Z0-9]+[-_])*(?:SHA|AES|RSA|GCM|CBC|HMAC|OAEP|ECDSA|ECDHE|ECDH|EDDSA|CHACHA20|MD5|PBKDF2?|RS|HS|ES|PS|X)[0-9]{0,5}(?:[-_:+][A-Za-z0-9]+)*",
    ),
    # Encrypted or hashed.
    "sealed": (
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
    ),
    "uuid": (r"\{?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\}?",),
    # Nothing but letters.
    "letters": (r"[A-Za-z]+",),
    # A number, a date, a version, a size.
    "number": (
        r"[-+]?[0-9][0-9.,:_/+\-TZ ]*(?:[kKMGT]?i?[bB]|ms|s|m|h|d|px|em|rem|pt|%|[eE][-+]?[0-9]+|L|[uU][lL]{0,2}|f|n)?",
        r"0x[0-9A-Fa-f]{1,16}",
        r"v?[0-9]+(?:\.[0-9]+)+(?:[.+-][0-9A-Za-z.*+-]+)?",
        r"[0-9]+[A-Za-z]{1,2}",
        r"[~^<>=]{1,2}[0-9][\w.*-]*",
        r"#[0-9A-Fa-f]{3,8}",
    ),
    # A path, an address, a file, a host.
    "place": (
        r"[A-Za-z][A-Za-z0-9+.-]{0,20}:/.*",
        r"(?:\.{1,2}|~|[A-Za-z]:)[/\\].*",
        r"/(?:[a-z_.{:][\w.@%+~{}:*-]*/)*[a-z_.{:][\w.@%+~{}:*-]*(?:\?.*)?/?",
        rf"[\w./:@\\-]*\.(?:{_FILES})(?::[0-9]+)?(?:[/?].*)?",
        r"[\w.+-]+@[\w-]+(?:\.[A-Za-z][\w-]*)+",
        r"[a-z0-9-]+(?:\.[a-z0-9-]+)+:[0-9]+",
        r"localhost.*",
        r"[A-Za-z_.-]+(?:/[A-Za-z_.-]+[0-9]{0,3}){2,}/?",
        r"/(?:bin|dev|etc|home|mnt|opt|proc|root|run|srv|tmp|usr|var|Applications|Library|System|Users|Volumes)/.*",
        r"[a-z]+\\[a-z].*",
    ),
    "hex": (
        r"(?:0x|base64:|hex:)?[0-9a-f]{12,}",
        r"(?:0x)?[0-9A-F]{12,}",
        r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5,}",
        r"(?:\\x[0-9A-Fa-f]{2}){6,}",
    ),
    # Letters with marks between them: a label, a name of several words.
    "words": (
        r"[A-Za-z\x80-\xff]+(?:['_.,:;/&+()\-!?*#@~|]+[A-Za-z\x80-\xff]+)*[.:?!*=,;&#_\-]{0,3}",
        r"[_#.@*$:~-]{1,3}[A-Za-z\x80-\xff]+(?:[-_.:/][A-Za-z]+)*[-_:=]?",
        r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+",
    ),
    # A call, an expression, a pattern.
    "code": (
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
    # Several words or what stands for them.
    "phrase": (r".* .*",),
    # Words with numbers at their ends.
    "numbered": (
        r"[#.@_]{0,2}[A-Za-z]{2,}[0-9]{0,4}(?:[-_.:/+]{1,2}(?:[A-Za-z]{2,}[0-9]{0,4}|v?[0-9]{1,4}|[A-Za-z]))*[.:!?]?",
        r"[A-Za-z]{3,}[0-9]{1,2}[A-Za-z]{3,}[0-9]{0,2}",
    ),
    # Letters and digits, mixed as programs draw them.
    "plain": (r"[A-Za-z0-9]+={0,2}",),
    # Letters, digits and signs.
    "other": (r"(?s:.*)",),
}


_FINGERPRINT = re.compile(rb"(?:0x)?(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{16}|[0-9A-Fa-f]{32}|[0-9A-Fa-f]{40})")
_OF_A_KEY = re.compile(rb"(?i:(?:gpg|pgp)_?keys?)$")  # which key signs, not the key
_UUID = re.compile(rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_PLAIN_KEYS = frozenset({b"key", b"keys", b"_key"})  # of an entry, of an element in a list
_DIGEST = re.compile(rb"[0-9a-f]{40}")
_CHECKSUMS = b"SPEC CHECKSUMS:"  # in what CocoaPods locks: names of packages, each with its digest
_FAR = 32_768


def is_identifier(name: bytes, value: bytes) -> bool:
    """Tell whether a value that is called so is no secret: the fingerprint of a key, the number of an entry."""
    if _UUID.fullmatch(value):
        return name.lower() in _PLAIN_KEYS
    return _OF_A_KEY.search(name) is not None and _FINGERPRINT.fullmatch(value) is not None


def is_checksum(data: bytes, left: int, right: int) -> bool:
    """Tell whether a value is a package's digest, under the heading for such."""
    if right - left != 40 or not _DIGEST.fullmatch(data, left, right):
        return False
    heading = data.rfind(_CHECKSUMS, max(0, left - _FAR), left)
    return heading >= 0 and data.find(b"\n\n", heading, left) < 0


_OPENS_WITHIN = 16  # of the first number's comma
_LONGEST = 1_600  # bytes of an array that is read
_NUMBER = rb"(?:0x[0-9A-Fa-f]{1,2}|[0-9]{1,3})"
_ARRAY = re.compile(rb"\{\s*(%b(?:\s*,\s*%b){7,255})\s*,?\s*\}" % (_NUMBER, _NUMBER))


def array_before(data: bytes, end: int) -> tuple[int, int, bytes] | None:
    """Give the numbers of an array whose first comma ends here: where they stand, and the bytes that they are."""
    opens = data.rfind(b"{", max(0, end - _OPENS_WITHIN), end)
    found = _ARRAY.match(data, opens, opens + _LONGEST) if opens >= 0 else None
    if found is None:
        return None
    numbers = [int(number, 16 if number[:2] == b"0x" else 10) for number in re.findall(_NUMBER, found[1])]
    return (*found.span(1), bytes(numbers)) if max(numbers) < 256 else None


class Shape(StrEnum):
    """What there are patterns for."""

    KNOWN = "known"
    REFERENCE = "reference"
    PUBLIC = "public"
    SEALED = "sealed"
    UUID = "uuid"
    LETTERS = "letters"
    NUMBER = "number"
    PLACE = "place"
    HEX = "hex"
    WORDS = "words"
    CODE = "code"
    PHRASE = "phrase"
    NUMBERED = "numbered"
    PLAIN = "plain"
    OTHER = "other"


@lru_cache(maxsize=16_384)
def shape_of(value: bytes) -> Shape:
    """Give the first shape that a value has, all of them looked for at once in linear time."""
    patterns, found = _compiled()
    shape: Shape = found[min(patterns.Match(value))]
    return shape


@cache
def _compiled() -> tuple[Any, list[Shape]]:
    """Compile all shapes into one automaton, the first time that there is a value to judge."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    patterns = re2.Set.FullMatchSet(options)
    names = []
    for name, of_shape in SHAPES.items():
        for pattern in of_shape:
            patterns.Add(pattern.encode("latin-1"))
            names.append(Shape(name))
    patterns.Compile()
    return patterns, names
