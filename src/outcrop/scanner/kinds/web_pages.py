"""Tokens that a server writes into every page, and signed links in pages."""

import re

from outcrop.lazy_regex import regex
from outcrop.scanner.kinds.kind import Kind, Sample

PAGE_TOKEN = Kind("page-token", "a token that a server writes into each page against forged requests", None)
SAVED_PAGE = Kind("saved-page", "a value in a saved web page, which everybody who opened the page has")
SIGNED_LINK = Kind(
    "signed-link", "a part of a signed link, of a badge or of a link to a file that ends by itself", None
)

_FORGERY_WORDS = regex(
    r"(?i)csrf|xsrf|authenticity_?token|requestverificationtoken|viewstate|eventvalidation|form_?(?:token|build_?id|key)"
    r"|^_token$|wp_?nonce|ajax_?nonce|rest_?nonce|security_?token$|anti_?forgery|honeypot|turbo"
)
_PAGE_NAMES = regex(
    rb"(?i)(?:csrf|xsrf|authenticity|nonce|verificationtoken|formkey|form_build_id)[^<>\n]{0,120}$"
)
_SECRET_WORDS = regex(r"(?i)pass|pwd|secret|private|credential")
# A link of the same site: its token belongs to the session that opened the page.
_OWN_LINK = regex(
    rb"(?i)\b(?:href|action|data-url|location)\s?=\s?\\?[\"'](?![a-z]+:)[^\s\"'<>]{0,300}[?&;]_?token=$"
)
_LINK_WITH_END = regex(rb"(?i)\bexp=[0-9]{10}~[^\s\"'<>]{0,300}~hmac=$")  # of Akamai
_SCRIPT_NONCE = regex(rb"(?i)<(?:script|style|link)\b[^<>]{0,300}\bnonce=[\"']?$")
_EMBEDDED_POST = regex(rb"(?i)<(?:blockquote|iframe)\b[^<>]{0,400}\bdata-secret=[\"']?$")  # of WordPress
_PAGE_RULES = frozenset(
    {"jwt", "algolia_key", "segment_write_key", "disqus_api_key", "swiftype_api_key"}
)  # of what is given to every reader
_LINK = regex(rb"(?i)https?:(?:\\?/){2}[^\s\"'<>]{1,380}[?&;][\w.$\[\]-]{1,40}=$")
_SIGNED_PARAMETER = regex(
    rb"(?i)(?:[?&;]|%26)(?:x-amz-signature|x-amz-credential|x-goog-signature|signature|sig|expires|exp|policy|key-pair-id"
    rb"|hmac|hash|md5|oh|oe|_nc_[a-z]+|se|st|hdnts|hdnea|verify|jwt|ixid)(?:=|%3d)"
)
# Numbers of containers and of clicks, and links that end at a time: `?e=1576142006&token=`.
_PUBLIC_PARAMETER = regex(rb"(?i)(?:gtm_auth|imprtoken|skiptoken|deltatoken|[?&]e=[0-9]{10}&token)=$")
_BADGE_OR_CDN = regex(
    rb"(?i)badge|shields\.io|codecov\.io|coveralls|githubusercontent\.com|cloudfront\.net|akamai|fbcdn|cdninstagram"
    rb"|twimg|imgix|gravatar|ytimg|googleusercontent|firebasestorage|app\.netlify\.com/|snyk\.io|circleci\.com/|\.svg\?"
    rb"|\.(?:png|jpe?g|gif|webp|mp4|mp3|m3u8|svg|css|js|pdf|zip)\?"
)


def is_page_token(sample: Sample) -> bool:
    """Whether the value is a token against forged requests, or the nonce of a script, by its name."""
    if not sample.is_generic:
        return False
    if _FORGERY_WORDS.search(sample.name) or _SCRIPT_NONCE.search(sample.before):
        return True
    if _EMBEDDED_POST.search(sample.before) or _OWN_LINK.search(sample.before):
        return True
    return _PAGE_NAMES.search(sample.before[-200:]) is not None and b"value=" in sample.before[-20:]


def is_in_saved_page(sample: Sample) -> bool:
    """Whether the value is in a complete HTML page and was found by a name that names no secret.

    A token of a known issuer in a page is a leak: everybody can read it. Only JWTs, and keys to search and
    to send events, are issued to everybody who opens it.
    """
    if not sample.is_in_html:
        return False
    if sample.rule_id in _PAGE_RULES:
        return True
    return sample.is_generic and (sample.name == "secret" or _SECRET_WORDS.search(sample.name) is None)


def is_in_signed_link(sample: Sample) -> bool:
    """Whether the value is a parameter of a link to a file or a badge, or of a link with a signature."""
    if not sample.is_generic:
        return False
    if _LINK_WITH_END.search(sample.before):
        return True
    link = _LINK.search(sample.before)
    if link is None:
        return False
    rest = re.match(rb"[^\s\"'<>)]*", sample.after)
    address = link[0] + (rest[0] if rest else b"")
    return (
        _BADGE_OR_CDN.search(address) is not None
        or _SIGNED_PARAMETER.search(address) is not None
        or _PUBLIC_PARAMETER.search(sample.before[-24:]) is not None
    )
