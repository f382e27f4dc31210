"""Read what leaves findings out: allow files, and the files of gitleaks and detect-secrets in a source.

An entry of our allow file is a rule and 20 bits of a value's SHA-256, as a fingerprint shows them. So it
holds wherever the value moves: in another line, file or commit.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from outcrop.domain.errors import BadInputError
from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.lazy_regex import regex
from outcrop.scanner.engine.hit import Hit
from outcrop.sources.located import LocatedHit

GITLEAKS_FILE = ".gitleaksignore"
DETECT_SECRETS_FILE = ".secrets.baseline"
_DIGITS = 5  # hexadecimal digits: 20 bits do not confirm a guessed password
_ENTRY = regex(rf"([a-z0-9_-]+)[ \t]+([0-9a-f]{{{_DIGITS}}})", re.ASCII)
_GITLEAKS_ENTRY = regex(r"(?:([0-9a-f]{40,64}):)?(.+):[^:]+:([0-9]{1,9})", re.ASCII)
_PEM_HEADER = regex(r"-----(BEGIN [A-Z ]{0,40}PRIVATE KEY)")
_HEAD = """\
# Findings that `outcrop scan --allow` leaves out. A line is a rule and 20 bits of the SHA-256 of the value:
# an entry holds for the value wherever it moves. What follows a # is for readers.
"""

AllowEntry = tuple[str, str]  # rule, first digits of the value's SHA-256


def digest_of(hit: Hit) -> str:
    """Return the first digits of the SHA-256 of a hit's value, as its fingerprint has them."""
    return hash_value(hit)[:_DIGITS]


def hash_value(hit: Hit) -> str:
    """Return the SHA-256 of a hit's value in hexadecimal."""
    return hashlib.sha256(reveal(hit.secret).encode("utf-8", "surrogateescape")).hexdigest()


def parse_allow_file(text: bytes, name: str) -> frozenset[AllowEntry]:
    """Return the entries of an allow file; raise BadInputError, with the line, if it is none."""
    entries = set()
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadInputError(f"{name}: is not UTF-8") from None
    for number, line in enumerate(lines, 1):
        if entry := line.partition("#")[0].strip():
            match = _ENTRY.fullmatch(entry)
            if match is None:
                raise BadInputError(f"{name}:{number}: an entry is a rule and {_DIGITS} hexadecimal digits")
            entries.add((match[1], match[2]))
    return frozenset(entries)


def extend_allow_file(old: bytes, found: Iterable[tuple[Hit, Mapping[str, Any]]], name: str) -> bytes:
    """Return an allow file with the old lines, and an entry for each found hit that has none yet.

    `found` are hits with the printed fields of their findings.
    """
    known = set(parse_allow_file(old, name))
    lines = [] if old.strip() else [_HEAD]
    for hit, fields in found:
        entry = hit.rule.id, digest_of(hit)
        if entry not in known:
            known.add(entry)
            place = f"{fields['file_path'] or '(unreachable)'}:{fields['line_number']}"
            lines.append(f"{entry[0]} {entry[1]}  # {one_line(place)}  reason: \n")
    separator = b"" if not old or old.endswith(b"\n") else b"\n"
    return old + separator + "".join(lines).encode("utf-8", "backslashreplace")


class SourceMarks(NamedTuple):
    """What the files of other scanners in a source leave out."""

    places: frozenset[tuple[str, int, str]] = frozenset()  # (path, line, commit or "") of .gitleaksignore
    hashes: frozenset[tuple[str, str]] = frozenset()  # (path, SHA-1 of the value) of .secrets.baseline

    @classmethod
    def parse(cls, gitleaks: bytes, detect_secrets: bytes) -> "SourceMarks":
        """Return the entries of both files. Lines and records that cannot be read leave nothing out."""
        return cls(frozenset(_parse_gitleaks(gitleaks)), frozenset(_parse_detect_secrets(detect_secrets)))

    def reason(self, located: LocatedHit) -> str | None:
        """Return the name of the file that leaves a hit out; None if there is none."""
        path = (located.path or b"").decode("utf-8", "surrogateescape")
        if self.places and path:
            commit = located.origin.commit if located.origin else ""
            lines = {located.hit.line, located.current_line or located.hit.line}
            for line in lines:
                # Without a commit of its own, such as in a folder, the place alone decides.
                if (path, line, "") in self.places or (path, line, commit or "*") in self.places:
                    return GITLEAKS_FILE
        if self.hashes and any((path, digest) in self.hashes for digest in _sha1_digests(located.hit)):
            return DETECT_SECRETS_FILE
        return None


def _parse_gitleaks(text: bytes) -> Iterable[tuple[str, int, str]]:
    """Yield the places of a .gitleaksignore. The rule of an entry is one of gitleaks and does not count."""
    for raw in text.decode("utf-8", "surrogateescape").splitlines():
        line = raw.strip()
        if line.startswith("#") or not (match := _GITLEAKS_ENTRY.fullmatch(line)):
            continue
        path = match[2].replace("\\", "/").removeprefix("./")
        yield path, int(match[3]), match[1] or ""
        if match[1]:
            yield path, int(match[3]), "*"


def _parse_detect_secrets(text: bytes) -> Iterable[tuple[str, str]]:
    """Yield (path, SHA-1) of the records of a .secrets.baseline."""
    try:
        results = orjson.loads(text)["results"] if text.strip() else {}
        for path, records in results.items():
            for record in records:
                if not record.get("is_secret"):  # an audited secret is to be reported
                    yield path.replace("\\", "/").removeprefix("./"), str(record["hashed_secret"]).lower()
    except (ValueError, TypeError, LookupError, AttributeError):
        return


def _sha1_digests(hit: Hit) -> list[str]:
    """Return the SHA-1 of a value, and of the header of a private key: detect-secrets hashes only that."""
    value = reveal(hit.secret)
    texts = [value, *(match[1] for match in [_PEM_HEADER.search(value[:200])] if match)]
    return [
        hashlib.sha1(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()
        for text in texts
    ]


class KnownFindings(NamedTuple):
    """The findings of other scanners' reports."""

    values: Collection[tuple[str, str]] = ()  # (path, SHA-256 of the value)
    places: Collection[tuple[str, int]] = ()  # (path, line) of findings without a value
    sha1: Collection[tuple[str, str]] = ()  # (path, SHA-1 of the value)

    def has(self, located: LocatedHit) -> bool:
        """Whether a report has a finding with this value, or at this place."""
        path = (located.path or b"").decode("utf-8", "surrogateescape")
        return (
            (path, hash_value(located.hit)) in self.values
            or (path, located.hit.line) in self.places
            or (path, located.current_line) in self.places
            or (bool(self.sha1) and any((path, digest) in self.sha1 for digest in _sha1_digests(located.hit)))
        )
