"""Kinds that only the path of a file shows: translations, lock files, word lists."""

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.randomness import random_bits
from outcrop.scanner.kinds.kind import Kind

TRANSLATION = Kind("translation", "a text in a file of translations")
LOCK_FILE = Kind(
    "lock-file", "an entry of a lock file, which has only names, versions and checksums of packages"
)

_TRANSLATIONS = regex(
    rb"(?i)(?:^|[/!])(?:locales?|lang|langs|languages?|i18n|l10n|intl|translations?|messages|lproj|po)/"
    rb"|(?:^|[/!])values-[a-z]{2,3}(?:-r?[A-Za-z]{2,4})?/|\.lproj/|\.i18n\."
    rb"|\.(?:po|pot|xlf|xliff|resx|arb|strings|mo|ftl|stringsdict|xcstrings)$"
    rb"|(?:^|[/!])(?:strings|messages|translations?|locale|language|lang|i18n|labels)[\w.-]*\.(?:json|xml|ya?ml|properties|php|js|ts|py|rb|csv)$"
    rb"|(?:^|[/!])[a-z]{2}(?:[-_][A-Z]{2})?\.(?:json|ya?ml|php|js|ts|rb)$"
)
_LOCK_FILES = regex(
    rb"(?i)(?:^|[/!])(?:package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|composer\.lock|poetry\.lock"
    rb"|pipfile\.lock|pdm\.lock|uv\.lock|cargo\.lock|gemfile\.lock|podfile\.lock|go\.sum|mix\.lock|packages\.lock\.json|flake\.lock"
    rb"|pubspec\.lock|package\.resolved|conan\.lock|deno\.lock|\.terraform\.lock\.hcl|gradle\.lockfile|cpanfile\.snapshot)$"
)
_MAX_WORD_BITS = 12.0
_MIN_SPACES = 4  # of a sentence, also in a language whose words look random
_ABBREVIATION = regex(r"\b[A-Z]{1,5}[0-9]{1,2}-")


def kind_at(path: bytes, value: str) -> Kind | None:
    """Return the kind of a value that was found by its name in the file at `path`; None if it has none."""
    if _LOCK_FILES.search(path):
        return LOCK_FILE
    if _TRANSLATIONS.search(path) and (
        value.count(" ") >= _MIN_SPACES or (_is_text(value) and _letter_bits(value) < _MAX_WORD_BITS)
    ):
        return TRANSLATION
    return None


def _is_text(value: str) -> bool:
    """Whether a value has no digits, or only in an abbreviation with a hyphen after it: `S3-nøkkel`."""
    return not any(map(str.isdigit, _ABBREVIATION.sub("", value)))


def _letter_bits(value: str) -> float:
    """Return how random the ASCII letters of a value are, in bits."""
    return random_bits(value.encode("ascii", "ignore").decode())
