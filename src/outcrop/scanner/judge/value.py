"""What a value is by its shape: a path, an address, a name, code, a number, a digest, or nothing of the kind."""

from enum import StrEnum
from functools import lru_cache

import re2  # type: ignore[import-untyped]


class Shape(StrEnum):
    """The first that fits counts."""

    REFERENCE = "reference"  # says where the value stands: a template, a variable, a vault
    PUBLIC = "public"  # public by what it is: a digest with its name, a public key, an image, a certificate
    SEALED = "sealed"  # encrypted or hashed
    UUID = "uuid"
    LETTERS = "letters"  # nothing but letters
    NUMBER = "number"  # a number, a date, a version, a size
    PLACE = "place"  # a path, an address, a file, a host
    HEX = "hex"
    WORDS = "words"  # letters with marks between them: a label, a name of several words
    CODE = "code"  # a call, an expression, a pattern
    NUMBERED = "numbered"  # words with numbers at their ends
    PLAIN = "plain"  # letters and digits, mixed as programs draw them
    OTHER = "other"  # letters, digits and signs


_FILE = (
    r"json|ya?ml|txt|py|jsx?|tsx?|go|rb|php|java|cs|html?|pem|key|crt|cer|p12|pfx|jks|keystore|env|conf|cfg|ini|toml|properties|xml|md|sh|png|svg|jpe?g|gif|css"
    r"|log|sock|gz|zip|exe|dll|so|bin|dat|db|sql|csv|pub|asc|kdbx|lock|war|jar|ova|tgz|whl|com|org|net|io|local|internal|localdomain"
)
_PATTERNS: dict[Shape, tuple[str, ...]] = {
    Shape.REFERENCE: (
        r".*(?:\$\{|\{\{|\}\}|#\{|<%|%>|%\(|\$\().*", r"\$[A-Za-z_].*", r"%[A-Za-z_%]\w*%?", r".*#[A-Za-z_]+#.*", r"<[^<>]*>?", r"\[[^\[\]]*\]?", r"\{[^{}]*\}?", r"@[\w.-]+@", r"__\w+__",
        r"(?:arn|vault|op|ssm|secret|env|file|urn|ref|config|keyring|sops|aws|gcp|azure|kms|classpath|projects|secrets)[:/+].*", r".*(?:^|\W)%[asdrvq@](?:\W.*|$)",
        r".*\{[A-Za-z_0-9.:!]*\}.*", r"(?:process\.env|os\.environ|env\.|System\.|ENV\[).*", r"\{?[A-Za-z_][\w.]*\}", r".*\*{3}.*", r".*\.\.\..*",
        r"!\w+.*", r"&\w+;.*", r".*&lt;.*", r"\\[(\"'$n].*",
    ),
    Shape.PUBLIC: (
        r"(?i:(?:hmac-)?(?:sha|md)[0-9]{1,3}[:=-]).*", r"(?:ssh-|ecdsa-sha2|data:|image/|h1:).*", r"AAAA[BEC][3-9][A-Za-z0-9+/]{4}.*", r"(?:iVBORw0KGgo|/9j/4AA|R0lGOD|PHN2Zy|d09GR|AAEAAAA|UEsDB|H4sI|PD94bW|JVBERi|PCFET0).*",
        r"MI[IG][A-Z][A-Za-z0-9+/]{2}A[NO][BA].*", r"MF[kY]wE[wA]YHKoZIzj0.*", r"MCowBQYDK2V.*", r".*aws4_request.*", r"00240000048000.*",
        r"[A-Z0-9]{2,}(?:-(?:[A-Z0-9]{2,}|with))+(?::.*)?",
    ),
    Shape.SEALED: (
        r"ENC[(\[].*", r"\$(?:2[abxy]?|[1569y]|apr1|argon2\w*|pbkdf2[\w-]*|scrypt)\$.*", r"\{(?:SHA|SSHA|CRYPT|bcrypt|cipher|MD5)\}.*", r"(?:pbkdf2|bcrypt|argon2|scrypt|sha1|sha256|md5)\w*\$.*",
        r"\{[A-Za-z0-9+/]{20,}={0,2}\}", r"vault:v[0-9]+:.*", r"Ag[A-Za-z0-9+/]{300,}={0,2}", r"U2FsdGVkX1.*", r"AQIC[A-Za-z0-9+/=]{60,}", r"gAAAAA[A-Za-z0-9_-]{60,}={0,2}",
    ),
    Shape.UUID: (r"\{?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\}?",),
    Shape.LETTERS: (r"[A-Za-z]+",),
    Shape.NUMBER: (
        r"[-+]?[0-9][0-9.,:_/+\-TZ ]*(?:[kKMGT]?i?[bB]|ms|s|m|h|d|px|em|rem|pt|%|[eE][-+]?[0-9]+|L|[uU][lL]{0,2}|f|n)?", r"0x[0-9A-Fa-f]{1,11}", r"v?[0-9]+(?:\.[0-9]+)+(?:[.+-][0-9A-Za-z.*+-]+)?", r"[0-9]+[A-Za-z]{1,2}",
        r"[~^<>=]{1,2}[0-9][\w.*-]*", r"#[0-9A-Fa-f]{3,8}",
    ),
    Shape.PLACE: (
        r"[A-Za-z][A-Za-z0-9+.-]{0,20}:/.*", r"(?:\.{1,2}|~|[A-Za-z]:)[/\\].*", r"/(?:[a-z_.{:][\w.@%+~{}:*-]*/)*[a-z_.{:][\w.@%+~{}:*-]*(?:\?.*)?/?", rf"[\w./:@\\-]*\.(?:{_FILE})(?::[0-9]+)?(?:[/?].*)?",
        r"[\w.+-]+@[\w-]+(?:\.[A-Za-z][\w-]*)+", r"[a-z0-9-]+(?:\.[a-z0-9-]+)+:[0-9]+", r"localhost.*", r"[A-Za-z_.-]+(?:/[A-Za-z_.-]+[0-9]{0,3}){2,}/?", r"[a-z]+\\[a-z].*",
    ),
    Shape.HEX: (r"(?:0x|base64:|hex:)?[0-9a-f]{12,}", r"(?:0x)?[0-9A-F]{12,}", r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5,}", r"(?:\\x[0-9A-Fa-f]{2}){6,}"),
    Shape.WORDS: (
        r"[A-Za-z\x80-\xff]+(?:['_.,:;/&+()\-!?*#@~|]+[A-Za-z\x80-\xff]+)*[.:?!*=,;&#_\-]{0,3}", r"[_#.@*$:~-]{1,3}[A-Za-z\x80-\xff]+(?:[-_.:/][A-Za-z]+)*[-_:=]?", r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+",
    ),
    Shape.CODE: (
        r"[A-Za-z_$@&*!][\w.$:>-]*[(\[].*", r".*(?:=>|->|::|&&|\|\||\)\.|\(\)|\);|\}\)|</?[A-Za-z]|\+\+|===|!==|\?\.).*", r"\^.*", r".*\\[dwsDWSbBnrtx0].*", r".*\[\^?[A-Za-z0-9]-[A-Za-z0-9].*",
        r"[&*][A-Za-z_]\w*", r"[)\]},;(|].*", r"\+.*\+", r"[?&:=]\w+=.*", r".*[({\[,|&<]", r"[A-Za-z_.-]+=", r"[\w.-]*[})\]]+[;,)]*", r"[A-Za-z_][\w.-]*(?:=|==|!=|:=)[A-Za-z_.]+\(?", r"[A-Za-z_]+[0-9]{0,2}(?:\.[A-Za-z_]+[0-9]{0,2})+[;,)]*",
        r"\w+=\w+(?:[&;,]\w+=\w*)+", r"@[A-Za-z_][\w./-]*", r"(?:true|false|null|nil|None|undefined)\b.*",
    ),
    Shape.NUMBERED: (r"[#.@_]{0,2}[A-Za-z]{2,}[0-9]{0,4}(?:[-_.:/+]{1,2}(?:[A-Za-z]{2,}[0-9]{0,4}|v?[0-9]{1,4}|[A-Za-z]))*[.:!?]?", r"[A-Za-z]{3,}[0-9]{1,2}[A-Za-z]{3,}[0-9]{0,2}"),
    Shape.PLAIN: (r"[A-Za-z0-9]+={0,2}",),
    Shape.OTHER: (r"(?s:.*)",),
}  # fmt: skip


def _set() -> tuple[re2.Set, list[Shape]]:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    patterns = re2.Set.FullMatchSet(options)
    shapes = []
    for shape, texts in _PATTERNS.items():
        for text in texts:
            patterns.Add(text.encode("latin-1"))
            shapes.append(shape)
    patterns.Compile()
    return patterns, shapes


_SET, _SHAPES = _set()


@lru_cache(maxsize=16_384)
def shape_of(value: bytes) -> Shape:
    """Give the first shape that a value has, all of them looked for at once in linear time."""
    return _SHAPES[min(_SET.Match(value))]
