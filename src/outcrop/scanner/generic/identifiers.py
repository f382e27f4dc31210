"""Values that only say which one something is, beside names that would otherwise be a credential's."""

import re

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
