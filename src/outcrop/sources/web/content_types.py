"""Classify responses by content type, convert their text to UTF-8, and recognise bot challenge pages."""

import codecs
import re
from collections.abc import Mapping

from outcrop.lazy_regex import regex
from outcrop.net.http import HttpResponse

# --- Content types

_HTML_TYPES = {"text/html", "application/xhtml+xml"}
_SCRIPT_TYPES = regex(r"(?:text|application)/(?:x-)?(?:java|ecma|live)script|text/jscript")
_SKIPPED_TYPES = regex(
    r"(?:image|font|audio|video)/|text/css$|application/(?:x-)?font|application/vnd\.ms-fontobject"
)
_HTML_HEAD_BYTES = 4_096  # comments and an XML declaration may precede the first tag
# Atomic groups never backtrack: a page of nothing but comments would otherwise take forever.
_HTML_BEGINNING = regex(
    rb"(?:\xef\xbb\xbf)?\s*+(?:(?><!--.{0,2048}?-->)\s*+|<\?xml[^>]{0,256}+>\s*+)*+"
    rb"<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)


def is_html(media_type: str, body: bytes) -> bool:
    """Whether a response is HTML: by its media type, or by its body if the type is "" or text/plain."""
    return media_type in _HTML_TYPES or (media_type in {"", "text/plain"} and looks_like_html(body))


def looks_like_html(body: bytes) -> bool:
    """Whether the body begins with a tag of an HTML page; comments may precede it."""
    return bool(_HTML_BEGINNING.match(body[:_HTML_HEAD_BYTES]))


def is_script(media_type: str) -> bool:
    """Whether the media type is a type of JavaScript, such as text/javascript."""
    return bool(_SCRIPT_TYPES.fullmatch(media_type))


def is_json(media_type: str) -> bool:
    """Whether the media type is application/json or ends with `+json`."""
    return media_type == "application/json" or media_type.endswith("+json")


def is_xml(media_type: str) -> bool:
    """Whether the media type is application/xml or text/xml, or ends with `+xml`."""
    return media_type in {"application/xml", "text/xml"} or media_type.endswith("+xml")


def is_skipped_type(media_type: str) -> bool:
    """Whether the media type is an image, font, video, audio or style sheet: no text to scan."""
    return bool(_SKIPPED_TYPES.match(media_type))


# --- Bot challenges

_CHALLENGE_HEAD_BYTES = 64 << 10
_CHALLENGE_TITLE = regex(
    rb"<title[^>]{0,64}>\s*(?:just a moment\.\.\.|attention required! \| cloudflare|checking your browser"
    rb"|please wait\.{0,3}\s*\|\s*cloudflare|ddos-guard|one moment, please"
    rb"|access to this page has been denied|human verification|verify you are human|pardon our interruption"
    rb"|security checkpoint|vercel security checkpoint|you are being redirected\.\.\.|bot verification"
    rb"|please verify you are a human)",
    re.IGNORECASE,
)
_CHALLENGE_SCRIPT = regex(
    rb"window\._cf_chl_opt|/_Incapsula_Resource\?|captcha-delivery\.com/c\.js|px-captcha"
    rb"|/\.well-known/sgcaptcha/|aws-waf-token|_pxAppId"
)
# With one of these statuses a challenge script is a challenge; on a normal page it may protect a form.
_CHALLENGE_STATUSES = {202, 401, 403, 405, 429, 503}


def is_challenge(response: HttpResponse) -> bool:
    """Whether the response is the challenge of a bot protection, such as Cloudflare, and not the page.

    A header decides, or the title of an HTML page, or with certain failure statuses a script in it.
    """
    headers = response.headers
    if headers.get("cf-mitigated", "").lower() == "challenge" or headers.get("x-amzn-waf-action"):
        return True
    head = response.body[:_CHALLENGE_HEAD_BYTES]
    if not is_html(response.media_type, head):
        return False
    return bool(_CHALLENGE_TITLE.search(head)) or (
        response.status in _CHALLENGE_STATUSES and bool(_CHALLENGE_SCRIPT.search(head))
    )


# --- Charsets

_CHARSET_HEAD_BYTES = 1_024  # a page must declare its charset within these
_HEADER_CHARSET = regex(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_META_CHARSET = regex(rb"<meta\s[^>]{0,256}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML_ENCODING = regex(rb"^\s*<\?xml\s[^>]{0,128}?encoding\s*=\s*[\"']([\w.:-]+)")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Only charsets that browsers know: some other codecs of Python decompress, or run for minutes.
_SAME_NAME_CODECS = regex(
    r"windows-125[0-8]|windows-874|iso-8859-(?:[2-8]|1[03-6])|koi8-[ru]|ibm866|euc-jp|iso-2022-jp"
    r"|utf-16(?:le|be)?"
)
# Charset label -> the codec of Python that decodes it as browsers do.
_BROWSER_CODECS = {
    "iso-8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252",
    "iso-8859-9": "cp1254", "iso-8859-11": "cp874", "shift_jis": "cp932", "shift-jis": "cp932",
    "sjis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932", "gb2312": "gb18030", "gbk": "gb18030",
    "gb18030": "gb18030", "x-gbk": "gb18030", "big5": "big5hkscs", "big5-hkscs": "big5hkscs",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "macintosh": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic", "utf-16": "utf-16-le", "x-cp1251": "cp1251", "cp1251": "cp1251",
    "cp1252": "cp1252", "x-cp1252": "cp1252", "windows-874": "cp874",
}  # fmt: skip


def to_utf8(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a text as UTF-8; unchanged if it declares no charset, or one that browsers do not know.

    The charset is that of a byte order mark, of the Content-Type in `headers`, or of a declaration in the
    text. A byte order mark is removed. Bytes that cannot be decoded are replaced.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            text = body[len(mark) :]
            return text if encoding == "utf-8" else text.decode(encoding, "replace").encode()
    codec = _codec_for(_declared_charset(body, headers.get("Content-Type", "")))
    if codec is None or (body.isascii() and not codec.startswith(("utf-16", "iso-2022"))):
        return body
    return body.decode(codec, "replace").encode()


def _declared_charset(body: bytes, content_type: str) -> str:
    """Return the charset that `content_type` or the beginning of the text declares; "" if there is none.

    The charset is in lower case. `content_type` is the Content-Type header, which is preferred.
    """
    if header := _HEADER_CHARSET.search(content_type):
        return header[1].lower()
    head = body[:_CHARSET_HEAD_BYTES]
    declared = _META_CHARSET.search(head) or _XML_ENCODING.match(head)
    # A declaration that can be read as ASCII is not in UTF-16, even if it says so.
    if declared is None or declared[1].lower().startswith(b"utf-16"):
        return ""
    return declared[1].decode("ascii").lower()


def _codec_for(charset: str) -> str | None:
    """Return Python's codec for a charset label in lower case; None if browsers do not know the label."""
    return _BROWSER_CODECS.get(charset) or (charset if _SAME_NAME_CODECS.fullmatch(charset) else None)
