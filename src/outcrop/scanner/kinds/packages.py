"""Entries of lock files and lists of dependencies: names, versions and checksums of packages."""

from outcrop.lazy_regex import regex
from outcrop.scanner.kinds.kind import Kind, Sample

PACKAGE_VERSION = Kind(
    "package-version", "the version of a package whose name contains a word for a credential", None
)
LOCK_ENTRY = Kind("lock-entry", "an entry of a lock file: the checksum or the address of a package", None)

_VERSION = regex(
    r"(?:npm|workspace|patch|link|file|portal|git|github):.*"
    r"|(?:[~^<>=!|* ]{0,3}v?[0-9]+(?:\.[0-9x*]+)+[\w.+-]*[ ,|]{0,4})+"
    # Of Debian and of RPM.
    r"|(?:[0-9]:)?[0-9]+(?:\.[0-9]+)+[\w.+~-]*[.+~-](?:dfsg|deb[0-9]|ubuntu|el[0-9]|fc[0-9])[\w.+~-]*"
)
_DIGEST = regex(rb"(?i)\bsha(?:1|256|384|512)-$")
_ENTRY_WORDS = (b"integrity", b"checksum", b"h1:", b"resolved")
_MAX_ENTRY = 230  # bytes from the beginning of an entry to its value
_ENTRY = regex(
    rb"(?i)(?:integrity[\"']?[ \t:=]{1,4}[\"']?|checksum[\"']?[ \t:=]{1,4}[\"']?|h1:"
    rb"|resolved[\"']?[ \t:]{1,4}[\"'][^\"'\n]{1,200})$"
)


def is_package_version(sample: Sample) -> bool:
    """Whether the value is the version or the source of a package: `js-tokens: "npm:^4.0.0"`."""
    return sample.is_generic and _VERSION.fullmatch(sample.value) is not None


def is_lock_entry(sample: Sample) -> bool:
    """Whether the checksum or the address of a package ends before the value: `"integrity": "sha512-"`."""
    before = sample.before[-_MAX_ENTRY:]
    if before[-1:] == b"-" and _DIGEST.search(before[-8:]):
        return True
    lower = before.lower()
    return any(word in lower for word in _ENTRY_WORDS) and _ENTRY.search(before) is not None
