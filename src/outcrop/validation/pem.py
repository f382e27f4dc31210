"""Restore PEM private keys that were quoted, indented, escaped or concatenated in source code."""

import re

from outcrop.lazy_regex import regex

_PEM_BLOCK = regex(
    r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----(.*?)-?-----END \1-----", re.DOTALL
)
_STRING_CONCATENATION = regex(r"""["']\s*[+.&\\]?\s*["']""")  # "…" + "…": its plus sign is not base64
_NOT_BASE64 = regex(r"[^A-Za-z0-9+/=]")
_PEM_HEADER = regex(r"(Proc-Type|DEK-Info): ?([A-Za-z0-9,.-]{1,80})")
_LINE_LENGTH = 64


def restore_pem(text: str) -> tuple[str, bytes] | None:
    """Return label and well-formed PEM of the first private key in a text; None if BEGIN or END is missing.

    The label is the text after BEGIN, such as `RSA PRIVATE KEY`. Line breaks, quotes, escapes and string
    concatenation inside the key are repaired; whether its base64 can be decoded is not checked.
    """
    text = _STRING_CONCATENATION.sub("\n", re.sub(r"\\+[nrt]", "\n", text))
    block = _PEM_BLOCK.search(text)
    if block is None:
        return None
    label, content = block[1], block[2]
    headers = [f"{name}: {value}" for name, value in _PEM_HEADER.findall(content)]
    if headers:
        headers.append("")  # an empty line ends the headers
    body = _NOT_BASE64.sub("", _PEM_HEADER.sub("", content))
    lines = [body[start : start + _LINE_LENGTH] for start in range(0, len(body), _LINE_LENGTH)]
    pem = "\n".join([f"-----BEGIN {label}-----", *headers, *lines, f"-----END {label}-----", ""])
    return label, pem.encode()
