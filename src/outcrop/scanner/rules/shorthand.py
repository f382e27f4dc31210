"""The short form of a rule: an issuer's word and what the value is made of. The rest, examples included, is made from these two.

Most issuers' credentials have no beginning of their own, and most rules would say the same things about them in the same words.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from outcrop.scanner.patterns.regex_ast import PatternError
from outcrop.scanner.rules.example_templates import ALPHABETS

WORD_GAP = 24  # characters between the name's end and its value
_APART = 40  # characters between the issuer's word and the name, line ends included
_KIND = "key|token|secret|passw(?:or)?d|pwd|pass|auth(?:orization|entication)?|bearer|cred(?:ential)?|pat"
_KIND_BEGINS = "key|token|secret|pass|pwd|auth|bearer|cred|pat"
_KIND_END = r"s?(?:\b|_|(?-i:[A-Z0-9]))"
# One name, or the next one below it: ACME_API_KEY, acme.token, "acme": {"key", acme:\n  secret, [acme]\nkey
_ONE_NAME = (
    r"""(?:[ ]?[a-z0-9_.-]{0,20}|["'\])]{0,2}[ \t]{0,2}[:=\[{(]{1,2}\s{0,16}["'{]{0,2}\s{0,16}["']?[a-z0-9_.-]{0,16}"""
    r"""|\]\s{1,4}[a-z0-9_.-]{0,16})"""
)
# A pair of name and value on two lines, however deep: - name: ACME_API_KEY\n  value: …, variable "acme_token" {\n  default = …
_PAIR = r"""(?:["',{ ]{0,4}\s{1,40}["']?(?:value|default))?"""
_SHORT_WORD = 5  # a shorter one is a syllable of other words
_CLASSES = {
    "digits": "[0-9]", "hex": "[0-9a-f]", "HEX": "[0-9A-F]", "lower": "[a-z]", "UPPER": "[A-Z]", "letters": "[A-Za-z]",
    "base32": "[A-Z2-7]", "base32lower": "[a-z2-7]", "base36": "[0-9a-z]", "BASE36": "[0-9A-Z]", "base62": "[0-9A-Za-z]",
    "base64": "[0-9A-Za-z+/]", "base64url": "[0-9A-Za-z_-]",
}  # fmt: skip
_UUIDS = {
    name: "-".join(f"[0-9{letters}]{{{length}}}" for length in (8, 4, 4, 4, 12))
    for name, letters in (("uuid", "a-f"), ("UUID", "A-F"))
}
_RANDOM = 0.7  # share of the randomness that a value of this length and alphabet can have
_MIXED = {
    "base36",
    "BASE36",
    "base62",
    "base64",
    "base64url",
}  # letters and digits: a run of letters is a name
_NAMES = r"[A-Z]?[a-z]+(?:[_-]?[A-Z]?[a-z]+)*|[A-Z]+(?:[_-][A-Z]+)*"
_HASHES = "[0-9a-f]{24,}|[0-9A-F]{24,}"
_PIECE = re.compile(
    r"\{\{(?P<alphabet>[A-Za-z0-9]+)(?: (?P<low>[1-9][0-9]*)(?:-(?P<high>[1-9][0-9]*))?)?\}\}"
)
_WRITTEN_SO = {
    "api": "API",
    "id": "ID",
    "oauth": "OAuth",
    "sdk": "SDK",
    "jwt": "JWT",
    "url": "URL",
    "rest": "REST",
    "pat": "personal access token",
}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of a value: a text that is always the same, or so many characters of an alphabet."""

    text: str = ""
    alphabet: str = ""
    low: int = 0
    high: int = 0


def make_pattern(values: Sequence[str]) -> str:
    """Write what values look like as a pattern."""
    found = ["".join(_piece_pattern(piece) for piece in _pieces(value)) for value in values]
    return found[0] if len(found) == 1 else "(?:" + "|".join(found) + ")"


def make_context(words: Sequence[str], *, tight: bool) -> str:
    """Write the name that a value of this issuer is given: its word, and one for a secret in the same name or soon after."""
    return f"{_name(words, tight=tight)}(?:{_KIND}){_KIND_END}{_PAIR}"


def make_trigger_pattern(words: Sequence[str], *, tight: bool) -> str:
    """Give the beginning of the context that is cheap to look for: a rare word alone, an everyday one with what must follow."""
    # The words for a secret stand in all code: looked for after every issuer's word, they cost a third of the first pass.
    if not tight:
        return f"(?i:{'|'.join(_word(word) for word in words)})"
    return f"(?is:{_name(words, tight=tight)}(?:{_KIND_BEGINS}))"


def _name(words: Sequence[str], *, tight: bool) -> str:
    between = _ONE_NAME if tight else f".{{0,{_APART}}}?"
    return f"(?:{'|'.join(_word(word) for word in words)}){between}"


def _word(word: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]+(?:[ ._-]?[A-Za-z0-9]+)*", word) or len(word) < 2:
        raise PatternError(f"word {word!r} is no name; write other signs as context")
    flexible = re.sub(r"[ ._-]", lambda _: "[ ._-]?", word.lower())
    return ("(?:^|[^a-z0-9])" if len(re.split("[ ._-]", word)[0]) < _SHORT_WORD else "") + flexible


def min_entropy(values: Sequence[str]) -> float:
    """Give how random a value must at least look: well below what one drawn by chance has."""
    return min(_entropy(_pieces(value)) for value in values)


def _entropy(pieces: list[_Piece]) -> float:
    drawn = [piece for piece in pieces if piece.alphabet]
    length = sum(piece.low for piece in drawn)
    return round(_RANDOM * math.log2(min(length, max(_size(piece.alphabet) for piece in drawn))), 1)


def make_exclude(values: Sequence[str]) -> str | None:
    """Give what has the right length and alphabet, but is a name or another's hash."""
    whole = [_pieces(value) for value in values]
    if not all(len(pieces) == 1 and pieces[0].alphabet in _MIXED for pieces in whole):
        return None
    return (
        _NAMES if {pieces[0].alphabet for pieces in whole} & {"base36", "BASE36"} else f"{_NAMES}|{_HASHES}"
    )


def all_have_prefix(values: Sequence[str]) -> bool:
    """Tell whether every value has a beginning that can be looked for."""
    return all(len(_pieces(value)[0].text) >= 3 for value in values)


def make_examples(rule_id: str, words: Sequence[str], values: Sequence[str]) -> list[str]:
    """Write files in which the value must be found: settings, a mapping, code."""
    name, word = _names(rule_id, words)
    out = []
    for number, value in enumerate(values):
        template = f"«{_template(value)}»"
        out += [
            f"{name}={template}\n",
            f"{word}:\n  api_key: {template}\n" if not number else f'{name} = "{template}"\n',
        ]
    first = f"«{_template(values[0])}»"
    return [
        *out,
        f'client = Client({name.lower()}="{first}", timeout=30)\n',
        f'{{"{name.lower()}": "{first}"}}\n',
    ]


def make_counterexamples(rule_id: str, words: Sequence[str], values: Sequence[str]) -> list[str]:
    """Write files in which nothing may be found: too short, another's or nobody's, a fill-in."""
    name, word = _names(rule_id, words)
    out = [f"{name}={_shortened(value)}\n" for value in values]
    out += [f"{name}={_filled_in(value)}\n" for value in values]
    whole = _template(values[0])
    if words:
        return [*out, f"ACME_INTERNAL={whole}\n", f"the archive of {word} has the checksum {whole}\n"]
    return [*out, f"{name}=Qx7{whole}\n"]


def default_name(issuer: str, rule_id: str, secret_type: str) -> str:
    """Write a rule's name for people: the issuer, and what the id says of the kind."""
    kind = rule_id.removeprefix(f"{secret_type}_")
    return f"{issuer} " + " ".join(_WRITTEN_SO.get(part, part) for part in re.split("[_-]", kind))


def default_secret_type(issuer: str) -> str:
    """Give the family's name: the issuer in small letters."""
    return re.sub("[^a-z0-9]", "", issuer.lower())


def _names(rule_id: str, words: Sequence[str]) -> tuple[str, str]:
    """Give a variable's name, and the word as a heading."""
    if not words:
        return rule_id.upper().replace("-", "_"), rule_id.partition("_")[0]
    word = words[0].lower()
    return re.sub("[ .-]", "_", word).upper() + "_API_KEY", re.sub("[ .]", "-", word)


def _pieces(value: str) -> list[_Piece]:
    template = _template(value)
    out: list[_Piece] = []
    at = 0
    for match in _PIECE.finditer(template):
        if match.start() > at:
            out.append(_Piece(text=template[at : match.start()]))
        at = match.end()
        out.append(_drawn(match, value))
    if at < len(template):
        out.append(_Piece(text=template[at:]))
    if any("{{" in piece.text for piece in out):
        raise PatternError(
            f"value {value!r} is not understood; write an alphabet and a length, such as hex 32"
        )
    if not any(piece.alphabet for piece in out):
        raise PatternError(f"value {value!r} is always the same")
    return out


def _drawn(match: re.Match[str], value: str) -> _Piece:
    alphabet, low = match["alphabet"], int(match["low"] or 0)
    high = int(match["high"] or low)
    if alphabet in _UUIDS and not low:
        return _Piece(alphabet=alphabet, low=32, high=32)
    if alphabet not in _CLASSES or not 0 < low <= high:
        raise PatternError(
            f"value {value!r} is not understood; alphabets are {', '.join(_CLASSES)}, or uuid, with a length or two"
        )
    return _Piece(alphabet=alphabet, low=low, high=high)


def _template(value: str) -> str:
    return value if "{{" in value else f"{{{{{value}}}}}"


def _piece_pattern(piece: _Piece) -> str:
    if not piece.alphabet:
        return re.escape(piece.text)
    if piece.alphabet in _UUIDS:
        return _UUIDS[piece.alphabet]
    count = str(piece.low) if piece.low == piece.high else f"{piece.low},{piece.high}"
    return f"{_CLASSES[piece.alphabet]}{{{count}}}"


def _size(alphabet: str) -> int:
    return 16 if alphabet in _UUIDS else len(ALPHABETS[alphabet])


def _shortened(value: str) -> str:
    """Write a value that lacks a good part of its longest stretch."""
    pieces = _pieces(value)
    longest = max((piece for piece in pieces if piece.alphabet), key=lambda piece: piece.low)
    return "".join(
        _write(piece, max(1, piece.low * 2 // 3) if piece is longest else piece.low) for piece in pieces
    )


def _write(piece: _Piece, length: int) -> str:
    if not piece.alphabet:
        return piece.text
    return f"{{{{{'hex' if piece.alphabet in _UUIDS else piece.alphabet} {length}}}}}"


def _filled_in(value: str) -> str:
    return "".join(piece.text or "x" * piece.high for piece in _pieces(value))
