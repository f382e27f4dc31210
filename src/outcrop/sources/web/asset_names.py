"""Recognise build hashes in file names, so that a file keeps its identity from one build to the next."""

import re

from outcrop.lazy_regex import regex

_SCRIPT = regex(r"\.[cm]?js$", re.IGNORECASE)
_ASSET = regex(r"\.(?:[cm]?js|css|map|json|wasm|html?|txt)$", re.IGNORECASE)
_SEPARATORS = regex(r"([.\-_~@])")
_BUNDLER_HASH = 8  # characters: bundlers append a hash of this length

_UUID = regex(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = regex(r"[0-9a-f]{4,128}|[0-9A-F]{8,128}")
_ALPHANUMERIC = regex(r"[A-Za-z0-9]{5,64}")
_ESBUILD_HASH = regex(r"[A-Z2-7]{8}")
_MIN_TIMESTAMP = 10  # digits: a shorter number is a version, a date or the number of a chunk

_TOKENS = regex(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
# Two letters that can begin an English word or name: `Tda` is a piece of a hash, `Tray` is not.
_WORD_BEGINNING = regex(
    r"[aeiou]|.[aeiouy]|b[lr]|c[hlr]|dr|f[lr]|g[hlnr]|ht|k[nr]|p[hlrs]|rh|s[chklmnpqtvw]|t[hrsw]|vl|w[hr]|xm"
)
_ACRONYM = regex(
    "HTML|HTTP|JSON|XML|YAML|UR[LI]|API|SSR|CSS|PDF|SVG|CSV|U[IX]|ID"
    "|DOM|SQL|JWT|FAQ|GPS|CMS|CDN|SDK|SEO|AWS|UTF|CRUD"
)
_VOWELS = frozenset("aeiouy")


def stable_path(path: str) -> str:
    """Return a URL path with the build hashes in its file name as `*`: `app.3f9a12bc.js` → `app.*.js`.

    The path is returned unchanged if its extension is not one of _ASSET, such as `.js`, `.css` or `.json`.
    """
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    if not stem or not _ASSET.search(name):
        return path
    stem = _UUID.sub("*", stem)
    if _ends_with_base64_hash(stem):
        stem = f"{stem[:-_BUNDLER_HASH]}*"
    parts = _SEPARATORS.split(stem)
    # `3f9a12bc.json` is more likely the name of a document than a build hash, `3f9a12bc.js` is not.
    if len(parts) > 1 or _SCRIPT.search(name):
        for number in range(0, len(parts), 2):
            separator = parts[number - 1] if number else ""
            if _is_hash(parts[number], separator, first=parts[0]):
                parts[number] = "*"
    return f"{folder}{slash}{''.join(parts)}{dot}{extension}"


def _ends_with_base64_hash(stem: str) -> bool:
    """Whether a file name without extension ends with `.` or `-` and a base64 hash of 8 characters.

    Such a hash may contain `-` and `_` itself.
    """
    return (
        len(stem) > _BUNDLER_HASH + 1
        and stem[-_BUNDLER_HASH - 1] in ".-"
        and _is_mixed_hash(re.sub("[-_]", "", stem[-_BUNDLER_HASH:]))
        and not _has_words(stem[-_BUNDLER_HASH:])
    )


def _is_hash(part: str, separator: str, *, first: str) -> bool:
    """Whether a part of a file name is a build hash: a long number, hexadecimal digits, or mixed characters.

    Mixed are letters and digits that are no words. A short part counts only after a separator. `separator` is
    the character before the part ("" for the first part), `first` the first part of the name.
    """
    if part.isdigit():
        return len(part) >= _MIN_TIMESTAMP
    if _HEX.fullmatch(part):
        has_digit = any(c.isdigit() for c in part)
        if len(part) >= 8:
            return has_digit or len(part) >= 16
        return separator == "." and has_digit and not _has_words(part)
    if first == "chunk" and _ESBUILD_HASH.fullmatch(part):
        return True
    return bool(separator or len(part) == _BUNDLER_HASH) and _is_mixed_hash(part) and not _has_words(part)


def _is_mixed_hash(part: str) -> bool:
    """Whether the part could be base64 or base32: 5 to 64 letters and digits of mixed kinds.

    The kinds are capitals, small letters and digits. Without capitals, letters and digits must alternate
    often.
    """
    if not _ALPHANUMERIC.fullmatch(part):
        return False
    kinds = {"A" if c.isupper() else "a" if c.islower() else "0" for c in part}
    return ("A" in kinds and len(kinds) > 1) or (len(kinds) > 1 and len(_TOKENS.findall(part)) >= 4)


def _has_words(part: str) -> bool:
    """Whether all letters of the part are in words, as in `HomePage`; one extra letter is allowed (`OAuth`).

    Digits do not count; True also if there are no letters.
    """
    tokens = [token for token in _TOKENS.findall(part) if not token.isdigit()]
    others = [token for token in tokens if not _is_word(token)]
    return not others or (len(others[0]) == len(others) == 1 and max(map(len, tokens)) >= 4)


def _is_word(token: str) -> bool:
    """Whether a token, which has letters only, looks like an English word or is a known acronym."""
    word = token.lower()
    if _ACRONYM.fullmatch(token.upper()):
        return True
    has_vowel = not _VOWELS.isdisjoint(word)
    if token.isupper():
        return len(word) > 5 and has_vowel
    return len(word) > 1 and has_vowel and bool(_WORD_BEGINNING.match(word))
