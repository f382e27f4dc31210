"""Expand the shorthand of a rule: the issuer's word and what its values are made of, such as `hex 32`.

Most issuers' credentials have no prefix, and their rules would all say the same. So the pattern, the context,
the entropy, the excluded values, the examples and the names are made from `word` and `value`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from outcrop.lazy_regex import regex
from outcrop.scanner.patterns.regex_ast import PatternError
from outcrop.scanner.rules.example_templates import ALPHABETS

WORD_GAP = 24  # characters between the end of the name and its value
_MAX_WORD_DISTANCE = 40  # characters between the issuer's word and a word such as key, across lines
_KEY_WORDS = (
    "key|token|secret|passw(?:or)?d|pwd|pass|auth(?:orization|entication)?|bearer|cred(?:ential)?|pat"
    "|(?-i:ACCESS|PRIVATE)"
)
_KEY_WORD_STARTS = "key|token|secret|pass|pwd|auth|bearer|cred|pat|(?-i:ACCESS|PRIVATE)"
_KEY_WORD_END = r"s?(?:\b|_|(?-i:[A-Z0-9]))"
# Between the two words in one name, or in a name and the next one below it:
# ACME_API_KEY, acme.token, "acme": {"key", acme:\n  secret, [acme]\nkey
_WITHIN_NAME = (
    r"""(?:[ ]?[a-z0-9_.-]{0,20}"""
    r"""|["'\])]{0,2}[ \t]{0,2}[:=\[{(]{1,2}\s{0,16}["'{]{0,2}\s{0,16}["']?[a-z0-9_.-]{0,16}"""
    r"""|\]\s{1,4}[a-z0-9_.-]{0,16})"""
)
# Name and value as a pair on two lines, at any indentation:
# - name: ACME_API_KEY\n  value: …, variable "acme_token" {\n  default = …
_PAIR = r"""(?:["',{ ]{0,4}\s{1,40}["']?(?:value|default))?"""
# Between an issuer's word and its value, if the word alone is the name: datadog = "…", "algolia": "…"
_ASSIGNMENT = r"""["'`]?\]?[ \t]{0,8}(?:=>|:=|[:=])[ \t]{0,8}["'`]?"""
_MIN_FREE_WORD = 5  # letters; a shorter word is part of other words, so it must begin a name
_CLASSES = {
    "digits": "[0-9]", "hex": "[0-9a-f]", "HEX": "[0-9A-F]", "lower": "[a-z]", "UPPER": "[A-Z]",
    "letters": "[A-Za-z]", "base32": "[A-Z2-7]", "base32lower": "[a-z2-7]", "base36": "[0-9a-z]",
    "BASE36": "[0-9A-Z]", "base62": "[0-9A-Za-z]", "base64": "[0-9A-Za-z+/]", "base64url": "[0-9A-Za-z_-]",
}  # fmt: skip
_UUIDS = {
    name: "-".join(f"[0-9{letters}]{{{length}}}" for length in (8, 4, 4, 4, 12))
    for name, letters in (("uuid", "a-f"), ("UUID", "A-F"))
}
_UUID_DIGITS = 32
_MIN_ENTROPY_SHARE = 0.7  # of the entropy that is possible for a value of this length and alphabet
_MIN_PREFIX = 3  # characters
# Alphabets of letters and digits: a value of them that has letters only is a name in code.
_MIXED_ALPHABETS = {"base36", "BASE36", "base62", "base64", "base64url"}
_CODE_NAMES = r"[A-Z]?[a-z]+(?:[_-]?[A-Z]?[a-z]+)*|[A-Z]+(?:[_-][A-Z]+)*"
_HASHES = "[0-9a-f]{24,}|[0-9A-F]{24,}"
_EXPRESSION = regex(
    r"\{\{(?P<alphabet>[A-Za-z0-9]+)(?: (?P<low>[1-9][0-9]*)(?:-(?P<high>[1-9][0-9]*))?)?\}\}"
)
# Words of a rule's id as they are written in its name.
_SPELLINGS = {
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
    """A piece of a value: either a fixed text, or `low` to `high` characters of an alphabet."""

    text: str = ""
    alphabet: str = ""
    low: int = 0
    high: int = 0


def make_pattern(values: Sequence[str]) -> str:
    """Return a regular expression for values such as `hex 32` or `dsk_{{base62 32}}`.

    Raise PatternError if a value is not understood.
    """
    patterns = ["".join(_piece_pattern(piece) for piece in _split_value(value)) for value in values]
    return patterns[0] if len(patterns) == 1 else "(?:" + "|".join(patterns) + ")"


def make_context(words: Sequence[str], *, tight: bool) -> str:
    """Return a regular expression for the name of a value: an issuer's word and a word such as key or token.

    With `tight` both must be in one name, or in a name and the next one below it. Raise PatternError if a
    word is no name.
    """
    return f"{_words_and_gap(words, tight=tight)}(?:{_KEY_WORDS}){_KEY_WORD_END}{_PAIR}"


def make_assignment(words: Sequence[str]) -> str:
    """Return a regular expression for an issuer's word that is the name of a value, up to the value.

    Raise PatternError if a word is no name.
    """
    return f"(?:^|[^0-9a-z])(?:{'|'.join(_name_pattern(word) for word in words)}){_ASSIGNMENT}"


def make_trigger_pattern(words: Sequence[str], *, tight: bool) -> str:
    """Return a regular expression for the beginning of what `make_context` matches, cheap to search for.

    It is one of the words alone; with `tight`, for everyday words, the word and the beginning of the next
    word such as key. Words such as key are in all code, and to search for them after every issuer's word took
    a third of the Hyperscan pass. Raise PatternError if a word is no name.
    """
    if not tight:
        return f"(?i:{'|'.join(_word_pattern(word) for word in words)})"
    return f"(?is:{_words_and_gap(words, tight=tight)}(?:{_KEY_WORD_STARTS}))"


def _words_and_gap(words: Sequence[str], *, tight: bool) -> str:
    """Return a regular expression for one of the words, and the text between it and a word such as key.

    With `tight` the text is within one name or up to the next name below it, otherwise any text of up to
    _MAX_WORD_DISTANCE characters. Raise PatternError if a word is no name.
    """
    gap = _WITHIN_NAME if tight else f".{{0,{_MAX_WORD_DISTANCE}}}?"
    return f"(?:{'|'.join(_word_pattern(word) for word in words)}){gap}"


def _word_pattern(word: str) -> str:
    """Return a regular expression for a word; its separators are optional in the text.

    A word must begin a name if its part before the first separator has fewer than _MIN_FREE_WORD characters.
    Raise PatternError if the word has one character only, or other characters than a name.
    """
    pattern = _name_pattern(word)
    is_short = len(re.split("[ ._-]", word)[0]) < _MIN_FREE_WORD
    return ("(?:^|[^a-z0-9])" if is_short else "") + pattern


def _name_pattern(word: str) -> str:
    """Return a regular expression for a word anywhere; its separators are optional in the text.

    Raise PatternError if the word has one character only, or other characters than a name.
    """
    if not re.fullmatch(r"[A-Za-z0-9]+(?:[ ._-]?[A-Za-z0-9]+)*", word) or len(word) < 2:
        raise PatternError(f"word {word!r} is not a name; use context for a pattern")
    return re.sub(r"[ ._-]", lambda _: "[ ._-]?", word.lower())


def min_entropy(values: Sequence[str]) -> float:
    """Return the bits per character that a value must have: well below the entropy of random values.

    Of several values, the one with the lowest limit decides. Raise PatternError if a value is not understood.
    """
    return min(_min_piece_entropy(_split_value(value)) for value in values)


def _min_piece_entropy(pieces: list[_Piece]) -> float:
    """Return _MIN_ENTROPY_SHARE of the bits per character that are possible for the random pieces of a value.

    There must be at least one random piece.
    """
    random_pieces = [piece for piece in pieces if piece.alphabet]
    length = sum(piece.low for piece in random_pieces)
    largest_alphabet = max(_alphabet_size(piece.alphabet) for piece in random_pieces)
    return round(_MIN_ENTROPY_SHARE * math.log2(min(length, largest_alphabet)), 1)


def make_exclude(values: Sequence[str]) -> str | None:
    """Return a regular expression for names in code and hashes that look like the values.

    None unless each value is a single random piece of an alphabet with letters and digits. Hashes are not
    excluded if an alphabet is base 36. Raise PatternError if a value is not understood.
    """
    all_pieces = [_split_value(value) for value in values]
    if not all(len(pieces) == 1 and pieces[0].alphabet in _MIXED_ALPHABETS for pieces in all_pieces):
        return None
    alphabets = {pieces[0].alphabet for pieces in all_pieces}
    return _CODE_NAMES if alphabets & {"base36", "BASE36"} else f"{_CODE_NAMES}|{_HASHES}"


def all_have_prefix(values: Sequence[str]) -> bool:
    """Whether every value begins with a fixed text of at least _MIN_PREFIX characters.

    Raise PatternError if a value is not understood.
    """
    return all(len(_split_value(value)[0].text) >= _MIN_PREFIX for value in values)


def make_examples(rule_id: str, words: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return templates of files in which each value, marked with «», must be found.

    They are settings, a mapping, code and JSON. The names in them are from the first of `words`, or else from
    the id.
    """
    variable, heading = _names_for(rule_id, words)
    examples = []
    for number, value in enumerate(values):
        template = f"«{_as_template(value)}»"
        examples += [
            f"{variable}={template}\n",
            f"{heading}:\n  api_key: {template}\n" if not number else f'{variable} = "{template}"\n',
        ]
    first = f"«{_as_template(values[0])}»"
    return [
        *examples,
        f'client = Client({variable.lower()}="{first}", timeout=30)\n',
        f'{{"{variable.lower()}": "{first}"}}\n',
    ]


def make_counterexamples(rule_id: str, words: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return templates of files in which nothing may be found.

    They have values that are too short, and placeholders. With `words` they also have a value without the
    words, otherwise one inside a longer value.
    """
    variable, heading = _names_for(rule_id, words)
    examples = [f"{variable}={_shorten(value)}\n" for value in values]
    examples += [f"{variable}={_placeholder(value)}\n" for value in values]
    first = _as_template(values[0])
    if words:
        return [
            *examples,
            f"ACME_INTERNAL={first}\n",
            f"the archive of {heading} has the checksum {first}\n",
        ]
    return [*examples, f"{variable}=Qx7{first}\n"]


def default_name(issuer: str, rule_id: str, secret_type: str) -> str:
    """Return a rule's name for people: the issuer, and the words of the id after the secret type.

    If the id does not begin with the secret type, all its words.
    """
    kind = rule_id.removeprefix(f"{secret_type}_")
    return f"{issuer} " + " ".join(_SPELLINGS.get(word, word) for word in re.split("[_-]", kind))


def default_secret_type(issuer: str) -> str:
    """Return the letters and digits of the issuer's name, in lower case."""
    return re.sub("[^a-z0-9]", "", issuer.lower())


def _names_for(rule_id: str, words: Sequence[str]) -> tuple[str, str]:
    """Return the name of a variable and a heading for examples, from the first word or else from the id."""
    if not words:
        return rule_id.upper().replace("-", "_"), rule_id.partition("_")[0]
    word = words[0].lower()
    return re.sub("[ .-]", "_", word).upper() + "_API_KEY", re.sub("[ .]", "-", word)


def _split_value(value: str) -> list[_Piece]:
    """Return the pieces of a value; raise PatternError if it is not understood or has no random piece."""
    template = _as_template(value)
    pieces: list[_Piece] = []
    done = 0
    for match in _EXPRESSION.finditer(template):
        if match.start() > done:
            pieces.append(_Piece(text=template[done : match.start()]))
        done = match.end()
        pieces.append(_parse_expression(match, value))
    if done < len(template):
        pieces.append(_Piece(text=template[done:]))
    if any("{{" in piece.text for piece in pieces):
        raise PatternError(
            f"value {value!r} is not understood; write an alphabet and a length, such as hex 32"
        )
    if not any(piece.alphabet for piece in pieces):
        raise PatternError(f"value {value!r} is always the same text")
    return pieces


def _parse_expression(match: re.Match[str], value: str) -> _Piece:
    """Return the random piece for a match of _EXPRESSION in `value`; raise PatternError if it is wrong."""
    alphabet, low = match["alphabet"], int(match["low"] or 0)
    high = int(match["high"] or low)
    if alphabet in _UUIDS and not low:
        return _Piece(alphabet=alphabet, low=_UUID_DIGITS, high=_UUID_DIGITS)
    if alphabet not in _CLASSES or not 0 < low <= high:
        raise PatternError(
            f"value {value!r} is not understood; write an alphabet ({', '.join(_CLASSES)}) with a length "
            "or a range of lengths, or uuid"
        )
    return _Piece(alphabet=alphabet, low=low, high=high)


def _as_template(value: str) -> str:
    """Return a value as a template: `hex 32` as `{{hex 32}}`, a template unchanged."""
    return value if "{{" in value else f"{{{{{value}}}}}"


def _piece_pattern(piece: _Piece) -> str:
    """Return a regular expression for one piece."""
    if not piece.alphabet:
        return re.escape(piece.text)
    if piece.alphabet in _UUIDS:
        return _UUIDS[piece.alphabet]
    count = str(piece.low) if piece.low == piece.high else f"{piece.low},{piece.high}"
    return f"{_CLASSES[piece.alphabet]}{{{count}}}"


def _alphabet_size(alphabet: str) -> int:
    """Return how many different characters an alphabet has; a UUID has hexadecimal digits."""
    return 16 if alphabet in _UUIDS else len(ALPHABETS[alphabet])


def _shorten(value: str) -> str:
    """Return a template for a value that lacks a third of its longest random piece.

    Other random pieces have their lowest length.
    """
    pieces = _split_value(value)
    longest = max((piece for piece in pieces if piece.alphabet), key=lambda piece: piece.low)
    return "".join(
        _piece_template(piece, max(1, piece.low * 2 // 3) if piece is longest else piece.low)
        for piece in pieces
    )


def _piece_template(piece: _Piece, length: int) -> str:
    """Return a template for one piece, with `length` random characters; a fixed text is returned as it is.

    A UUID becomes hexadecimal digits.
    """
    if not piece.alphabet:
        return piece.text
    return f"{{{{{'hex' if piece.alphabet in _UUIDS else piece.alphabet} {length}}}}}"


def _placeholder(value: str) -> str:
    """Return a value with `x` for each random character, as many as it can have."""
    return "".join(piece.text or "x" * piece.high for piece in _split_value(value))
