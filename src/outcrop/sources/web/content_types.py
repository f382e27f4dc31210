"""What an answer is: in which letters it is written, whether it is a page, and whether it is only somebody's question if we are human."""

import codecs
import re
from collections.abc import Mapping

from outcrop.net.http import HttpResponse

_HEAD = 1_024  # where a page must say in which letters it is written
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta\s[^>]{0,256}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml\s[^>]{0,128}?encoding\s*=\s*[\"']([\w.:-]+)")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# The encodings that browsers know, and no other: some of Python's unpack, or run for minutes.
_KNOWN = re.compile(
    r"windows-125[0-8]|windows-874|iso-8859-(?:[2-8]|1[03-6])|koi8-[ru]|ibm866|euc-jp|iso-2022-jp|utf-16(?:le|be)?"
)
_AS_BROWSERS_READ = {
    "iso-8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252", "us-ascii": "cp1252", "ascii": "cp1252", "iso-8859-9": "cp1254",
    "iso-8859-11": "cp874", "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932",
    "gb2312": "gb18030", "gbk": "gb18030", "gb18030": "gb18030", "x-gbk": "gb18030", "big5": "big5hkscs", "big5-hkscs": "big5hkscs",
    "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "macintosh": "mac_roman", "x-mac-cyrillic": "mac_cyrillic", "utf-16": "utf-16-le",
    "x-cp1251": "cp1251", "cp1251": "cp1251", "cp1252": "cp1252", "x-cp1252": "cp1252", "windows-874": "cp874",
}  # fmt: skip

_HTML_TYPES = {"text/html", "application/xhtml+xml"}
_SCRIPT_TYPES = re.compile(r"(?:text|application)/(?:x-)?(?:java|ecma|live)script|text/jscript")
# What was read is not read again in another way: pages of nothing but comments would never end.
_PAGE_BEGINS = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*+(?:(?><!--.{0,2048}?-->)\s*+|<\?xml[^>]{0,256}+>\s*+)*+<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_UNREADABLE = re.compile(
    r"(?:image|font|audio|video)/|text/css$|application/(?:x-)?font|application/vnd\.ms-fontobject"
)

_CHALLENGE_HEAD = 64 << 10
_CHALLENGE_TITLE = re.compile(
    rb"<title[^>]{0,64}>\s*(?:just a moment\.\.\.|attention required! \| cloudflare|checking your browser"
    rb"|please wait\.{0,3}\s*\|\s*cloudflare|ddos-guard|one moment, please|access to this page has been denied"
    rb"|human verification|verify you are human|pardon our interruption"
    rb"|security checkpoint|vercel security checkpoint|you are being redirected\.\.\.|bot verification|please verify you are a human)",
    re.IGNORECASE,
)
_CHALLENGE_PARTS = re.compile(
    rb"window\._cf_chl_opt|/_Incapsula_Resource\?|captcha-delivery\.com/c\.js|px-captcha|/\.well-known/sgcaptcha/|aws-waf-token|_pxAppId"
)
_BLOCKING = {
    202,
    401,
    403,
    405,
    429,
    503,
}  # with these a part of a challenge is the answer itself; on a page it may be a form's


def is_html(media_type: str, body: bytes) -> bool:
    return media_type in _HTML_TYPES or (media_type in {"", "text/plain"} and looks_like_html(body))


def looks_like_html(body: bytes) -> bool:
    return bool(_PAGE_BEGINS.match(body[:4_096]))


def is_script(media_type: str) -> bool:
    return bool(_SCRIPT_TYPES.fullmatch(media_type))


def is_json(media_type: str) -> bool:
    return media_type == "application/json" or media_type.endswith("+json")


def is_xml(media_type: str) -> bool:
    return media_type in {"application/xml", "text/xml"} or media_type.endswith("+xml")


def is_unreadable(media_type: str) -> bool:
    """Tell whether the type says that it is an image, a font, a film, a sound or a style sheet."""
    return bool(_UNREADABLE.match(media_type))


def is_challenge(answer: HttpResponse) -> bool:
    """Tell whether the answer is a question of somebody who guards the site, and no page of it."""
    if answer.headers.get("cf-mitigated", "").lower() == "challenge" or answer.headers.get(
        "x-amzn-waf-action"
    ):
        return True
    head = answer.body[:_CHALLENGE_HEAD]
    if not is_html(answer.media_type, head):
        return False
    return bool(_CHALLENGE_TITLE.search(head)) or (
        answer.status in _BLOCKING and bool(_CHALLENGE_PARTS.search(head))
    )


def to_utf8(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Give a text as UTF-8; one whose letters nobody names, or names wrongly, stays as it is."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return (
                body[len(mark) :] if name == "utf-8" else body[len(mark) :].decode(name, "replace").encode()
            )
    codec = _codec(_named(body, headers.get("Content-Type", "")))
    if codec is None or (body.isascii() and not codec.startswith(("utf-16", "iso-2022"))):
        return body
    return body.decode(codec, "replace").encode()


def _named(body: bytes, content_type: str) -> str:
    if header := _CHARSET.search(content_type):
        return header[1].lower()
    inside = _META.search(body[:_HEAD]) or _XML.match(body[:_HEAD])
    # A page that can be read so far is not written in two bytes per letter, whatever it says.
    return inside[1].decode("ascii").lower() if inside and not inside[1].lower().startswith(b"utf-16") else ""


def _codec(name: str) -> str | None:
    return _AS_BROWSERS_READ.get(name) or (name if _KNOWN.fullmatch(name) else None)
