"""A private key as it stands in a text: quoted, indented, escaped or put together from pieces."""

import re

_WHOLE = re.compile(
    r"-----BEGIN ([A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----(.*?)-?-----END \1-----", re.DOTALL
)
_PUT_TOGETHER = re.compile(r"""["']\s*[+.&\\]?\s*["']""")  # "…" + "…": the sign is not base64
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=]")
_HEADER = re.compile(r"(Proc-Type|DEK-Info): ?([A-Za-z0-9,.-]{1,80})")


def straighten(text: str) -> tuple[str, bytes] | None:
    """Give a key's kind and its PEM as it was before somebody quoted it; None where its end is missing."""
    text = _PUT_TOGETHER.sub("\n", re.sub(r"\\+[nrt]", "\n", text))
    found = _WHOLE.search(text)
    if found is None:
        return None
    kind, inner = found[1], found[2]
    headers = [f"{name}: {value}" for name, value in _HEADER.findall(inner)]
    body = _NOT_BASE64.sub("", _HEADER.sub("", inner))
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return kind, "\n".join(
        [f"-----BEGIN {kind}-----", *headers, *([""] if headers else []), *lines, f"-----END {kind}-----", ""]
    ).encode()
