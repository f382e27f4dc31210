"""Addresses on the web: one spelling for each, which of them belong together, how they are told, and what identifies a file."""

import posixpath
import re
from urllib.parse import parse_qsl, urljoin, urlsplit

from yarl import URL

_LONGEST = 4_096
_HOST = re.compile(r"[\w.:-]+")
_IGNORED = re.compile(r"[\t\n\r]")  # browsers drop these wherever they stand
_DEFAULT_PORTS = {"http": 80, "https": 443}

_SCRIPT = re.compile(r"\.[cm]?js$", re.IGNORECASE)
# Nothing that a text scanner could read.
_SKIPPED = re.compile(
    r"\.(?:css|png|jpe?g|gif|webp|avif|svgz?|ico|bmp|tiff?|heic|woff2?|ttf|otf|eot|mp[34]|m4[av]|webm|og[gav]|wav|flac|mov|avi|mkv|aac)$",
    re.IGNORECASE,
)


def normalise_url(reference: str, base: str = "") -> str | None:
    """Give the one spelling of an address, without fragment, name and password; None where it is not one of the web."""
    cleaned = _IGNORED.sub("", reference.strip("\x00\x0b\x0c\x1f ")).replace("\\", "/")
    try:
        url = URL(urljoin(base, cleaned)).with_fragment(None)
        if url.scheme not in _DEFAULT_PORTS or not url.host or not _HOST.fullmatch(url.host):
            return None
        spelled = str(url.with_user(None))
    except ValueError:
        return None
    if spelled.count("/") == 2:
        spelled += "/"
    return spelled if len(spelled) <= _LONGEST else None


def url_origin(url: str) -> str:
    """Give scheme, host and port of an address that has its one spelling."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def url_path(url: str) -> str:
    return urlsplit(url).path or "/"


def is_same_site(url: str, start: str) -> bool:
    """Tell whether an address is of the start's site: its scheme or a safer one, its port, its host with or without `www.`."""
    there, here = urlsplit(url), urlsplit(start)
    if there.scheme != here.scheme and (here.scheme, there.scheme) != ("http", "https"):
        return False
    ports = [_standard(parts.scheme, parts.port) for parts in (there, here)]
    hosts = [(parts.hostname or "").removeprefix("www.") for parts in (there, here)]
    return ports[0] == ports[1] and hosts[0] == hosts[1]


def _standard(scheme: str, port: int | None) -> int | None:
    return None if port == _DEFAULT_PORTS[scheme] else port


def redact_url(url: str) -> str:
    """Write an address for people: without name and password, and of its query the names only, which may still tell pages apart."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that cannot be read"
    names = [name for name, value in parse_qsl(parts.query, max_num_fields=None) if value and len(name) <= 40]
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + (
        f"?{'&'.join(names)}" if names else ""
    )


def is_script_url(url: str) -> bool:
    return bool(_SCRIPT.search(url_path(url)))


def is_skipped_url(url: str) -> bool:
    """Tell whether the name says that it is an image, a font, a film, a sound or a style sheet."""
    return bool(_SKIPPED.search(url_path(url)))


# What identifies a file of a site: its path, in which the parts of the name that change with the content are `*`.

_ASSET = re.compile(r"\.(?:[cm]?js|css|map|json|wasm|html?|txt)$", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]{4,128}|[0-9A-F]{8,128}")
_MIXED = re.compile(r"[A-Za-z0-9]{8,64}")
_TOKENS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
# How an English word or name may begin: `Tda` is a piece of a hash, `Tray` is not.
_WORD = re.compile(
    r"[aeiou]|.[aeiouy]|b[lr]|c[hlr]|dr|f[lr]|g[hlnr]|ht|k[nr]|p[hlrs]|rh|s[chklmnpqtvw]|t[hrsw]|vl|w[hr]|xm"
)
_ACRONYM = re.compile(
    "HTML|HTTP|JSON|XML|YAML|UR[LI]|API|SSR|CSS|PDF|SVG|CSV|U[IX]|ID|DOM|SQL|JWT|FAQ|GPS|CMS|CDN|SDK|SEO|AWS|UTF|CRUD"
)


def stable_path(path: str) -> str:
    """Give what stays of a URL's path from one build to the next: `app.3f9a12bc.js` → `app.*.js`."""
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    if not stem or not _ASSET.search(name):
        return path
    stem = _UUID.sub("*", stem)
    # Hashes in base64 may hold the signs that otherwise divide a name; bundlers put eight characters at the end.
    if (
        len(stem) > 9
        and stem[-9] in ".-"
        and _is_mixed_hash(re.sub("[-_]", "", stem[-8:]))
        and not _has_words(stem[-8:])
    ):
        stem = f"{stem[:-8]}*"
    parts = re.split(r"([.\-_~@])", stem)
    alone = len(parts) == 1
    if not alone or _SCRIPT.search(
        name
    ):  # `3f9a12bc.json` is more likely the name of a document than of a build
        for number in range(0, len(parts), 2):
            before = parts[number - 1] if number else ""
            if _is_hash(parts[number], before, first=parts[0]):
                parts[number] = "*"
    return f"{folder}{slash}{''.join(parts)}{dot}{extension}"


def _is_hash(part: str, before: str, *, first: str) -> bool:
    if part.isdigit():
        return len(part) >= 10  # the time of a build; a shorter number is a version, a day or a chunk
    if _HEX.fullmatch(part):
        if len(part) >= 8:
            return any(c.isdigit() for c in part) or len(part) >= 16
        return before == "." and any(c.isdigit() for c in part) and not _has_words(part)
    if first == "chunk" and re.fullmatch("[A-Z2-7]{8}", part):  # esbuild's
        return True
    return bool(before or len(part) == 8) and _is_mixed_hash(part) and not _has_words(part)


def _is_mixed_hash(part: str) -> bool:
    """Tell whether a part could be base64 or base32: capitals with small letters or digits, or letters and digits by turns."""
    if not _MIXED.fullmatch(part) and not re.fullmatch("[A-Za-z0-9]{5,8}", part):
        return False
    kinds = {"A" if c.isupper() else "a" if c.islower() else "0" for c in part}
    return ("A" in kinds and len(kinds) > 1) or (len(kinds) > 1 and len(_TOKENS.findall(part)) >= 4)


def _has_words(part: str) -> bool:
    """Tell whether a part is made of words, as `HomePage`, `Base64Url` and `OAuthClient` are."""
    letters = [token for token in _TOKENS.findall(part) if not token.isdigit()]
    others = [token for token in letters if not _is_word(token)]
    return not others or (len(others[0]) == len(others) == 1 and max(map(len, letters)) >= 4)


def _is_word(token: str) -> bool:
    word = token.lower()
    if _ACRONYM.fullmatch(token.upper()):
        return True
    if token.isupper():
        return len(word) > 5 and bool(set(word) & set("aeiouy"))
    return len(word) > 1 and bool(set(word) & set("aeiouy")) and bool(_WORD.match(word))


def clean_path(path: str) -> str:
    """Resolve `.` and `..` without climbing above the root."""
    return posixpath.normpath("/" + path.replace("\\", "/")).lstrip("/")
