"""Values that are a part of something longer: of an image in base64, of a bundle of scripts."""

import re

from outcrop.lazy_regex import regex
from outcrop.scanner.kinds.kind import Kind, Sample

MEDIA = Kind("media", "a part of base64 that is much longer: of an image, a font or an archive", None)
BINARY_DATA = Kind("binary-data", "bytes of a binary file", None)
MINIFIED_CODE = Kind("minified-code", "a piece of a bundled script, in a line of more than 500 characters")

_BASE64_END = regex(rb"[0-9A-Za-z+/]+$")
_BASE64_START = regex(rb"[0-9A-Za-z+/]*")
_MIN_RUN = 60
# A run of base85 that contains a name by chance: many symbols between letters, and no space.
_BASE85_BEFORE = regex(
    rb"(?:^|[\s\"'])(?:[0-9A-Za-z]{0,12}[!#$%&()*+;<=>?@^_`{|}~-]){6}[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]*$"
)
_BASE85_AFTER = regex(rb"(?:[0-9A-Za-z]{0,12}[!#$%&()*+;<=>?@^_`{|}~-]){3}|$|[\"'\\]")
# The first characters of images, fonts, archives, documents, programs and serialized objects in base64.
_MEDIA_START = regex(
    r"(?:iVBORw0KGgo|/9j/4|R0lGOD|PHN2Zy|d09G|AAEAAAA|UEsDB|H4sI|PD94bW|JVBERi|PCFET0|rO0AB|TVqQAA|f0VMR|Qk[02]|T2dnUw|SUQz)"
    r"[0-9A-Za-z+/=_-]{12,}"
)
_CONTROL = regex(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MAX_CONTROLS = 6
_DATA_URL = regex(rb"data:[\w/+.-]{3,60};base64,[0-9A-Za-z+/]{0,400}$")
_MIN_BUNDLE_LINE = 500
_CODE_SIGNS = regex(rb"[;{}()]")
_MIN_SIGNS = 25
_MAX_VALUE = 200


def is_in_media(sample: Sample) -> bool:
    """Whether the value is in the middle of a long run of base64."""
    before, after = sample.before, sample.after
    if len(sample.value) > 1_000:
        return False
    if _DATA_URL.search(before) or (sample.is_generic and _MEDIA_START.fullmatch(sample.value)):
        return True
    if sample.is_generic and _BASE85_BEFORE.search(before) and _BASE85_AFTER.match(after):
        return True
    if before[-1:] not in {b"+", b"/"} and after[:1] not in {b"+", b"/"}:
        return False
    left, right = _BASE64_END.search(before), _BASE64_START.match(after)
    return (len(left[0]) if left else 0) + (len(right[0]) if right else 0) >= _MIN_RUN


def is_in_binary_data(sample: Sample) -> bool:
    """Whether control characters are around the value, as in programs, images and compressed data."""
    if sample.has_prefix:
        return False
    near = sample.data[max(0, sample.start - 150) : sample.end + 150]
    return len(_CONTROL.findall(near)) > _MAX_CONTROLS


def is_in_minified_code(sample: Sample) -> bool:
    """Whether the value is a short piece of code in a line with many brackets and semicolons around it."""
    if sample.has_prefix or len(sample.value) > _MAX_VALUE or sample.line_length < _MIN_BUNDLE_LINE:
        return False
    if sample.is_generic and re.fullmatch(r"[0-9A-Za-z_+/=-]{16,}", sample.value):
        return False
    near = sample.before[-200:] + sample.after[:200]
    return len(_CODE_SIGNS.findall(near)) >= _MIN_SIGNS
