"""What a file is by its first bytes: something to unpack, or to read as it is. What unpacks is loaded where there is such a file."""

_SEALED = {
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "compress",
}
# Of what is packed; what is so and begins otherwise has a zero among its first 512 bytes.
FIRST_BYTES = frozenset(b"\x1fPB\xfd\xff\xfe") | {magic[0] for magic in _SEALED}


def is_packed(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Tell by its first bytes whether a file is something to unpack rather than to read as it is."""
    stop = len(data) if stop is None else stop
    if stop - start < 4 or (data[start] not in FIRST_BYTES and data.find(b"\0", start, min(start + 512, stop)) < 0):
        return False  # the usual case, told quickly
    head = bytes(data[start : min(start + 512, stop)])
    return opener_of(head) is not None or utf16_of(head) is not None or sealed_as(head) is not None


def sealed_as(data: bytes) -> str | None:
    """Name what is packed in a way that we cannot open."""
    return next((kind for magic, kind in _SEALED.items() if data.startswith(magic)), None)


def opener_of(data: bytes) -> str | None:
    """Name how a file is packed that we can open."""
    if data[:2] == b"\x1f\x8b":
        return "gzip"
    if data[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
        return "zip"
    if data[257:262] == b"ustar":
        return "tar"
    if data[:3] == b"BZh" and data[4:10] == b"1AY&SY":
        return "bz2"
    return "xz" if data[:6] == b"\xfd7zXZ\x00" else None


def utf16_of(data: bytes) -> str | None:
    """Tell UTF-16 by its mark, or by every other byte of its beginning being zero."""
    if data[:2] == b"\xff\xfe" and data[2:4] != b"\0\0":
        return "utf-16"
    if data[:2] == b"\xfe\xff":
        return "utf-16"
    head = data[:256]
    if len(head) < 16 or b"\0" not in head:
        return None
    even, odd = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / len(head[1::2])
    if odd > 0.8 and even < 0.1:
        return "utf-16-le"
    return "utf-16-be" if even > 0.8 and odd < 0.1 else None
