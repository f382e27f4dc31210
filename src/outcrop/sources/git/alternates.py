"""The file in which git names the object folders that a repository borrows from."""

import re

_QUOTED = re.compile(rb'"((?:[^"\\]|\\[abfnrtv"\\]|\\[0-3][0-7]{2})*+)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_SHORT = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))


def folders(raw: bytes) -> list[bytes]:
    """Give the folders as git reads them: a line for each, or a quoted word, behind which one character is passed over."""
    found = []
    at = 0
    while at < len(raw):
        quoted = _QUOTED.match(raw, at)
        end = (
            quoted.end() if quoted else raw.find(b"\n", at) % (len(raw) + 1)
        )  # to the end, where no line ends
        if quoted:
            found.append(_ESCAPE.sub(_character, quoted[1]))
        elif not raw.startswith(b"#", at):
            found.append(raw[at:end])
        at = end + 1
    return [folder for folder in found if folder]


def _character(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return bytes([int(code, 8) if len(code) > 1 else _SHORT[code[0]]])


def line(folder: bytes) -> bytes:
    """Write a folder so that a line break in it does no harm."""
    escaped = b"".join(b"\\%03o" % c if c < 32 or c in b'"\\' or c > 126 else bytes([c]) for c in folder)
    return b'"' + escaped + b'"\n'
