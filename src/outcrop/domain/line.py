"""Make any text safe to print on one line of a terminal."""


def one_line(text: str) -> str:
    """Return the text with every non-printable character escaped, such as line breaks and control codes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    r"""Return a character as an escape sequence; an undecodable byte (surrogateescape) as `\\xNN`."""
    code = ord(char)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else char.encode("unicode_escape").decode()
