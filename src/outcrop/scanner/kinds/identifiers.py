"""Values that number or date something: the UUID of an entry, a time, the invitation to a meeting."""

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import Noun, find_noun
from outcrop.scanner.kinds.kind import Kind, Sample

ENTITY_KEY = Kind("entity-key", "a UUID that numbers an entry, by its name or its type")
TIME = Kind("time", "a date with a time, or the format of one")
INVITATION = Kind("invitation", "the password in a link that invites people to a meeting")

_UUID = regex(r"\{?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\}?")
_OF_TYPE = regex(rb"\b(?:Guid|UUID|uuid)\s+([A-Za-z_]\w{0,60})\s*=\s*new(?:\s+\w+)?\([\"']$")
_ESCAPED_ATTRIBUTE = regex(rb"(?i)([\w-]*key)=&quot;$")
_TIME = regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
    r"(?:Z|[ ]?[+-][0-9:]{2,6})?"
    r"|(?:[Yy]{1,4}[-/.][Mm]{1,2}[-/.][Dd]{1,2}|[Dd]{1,2}[-/.][Mm]{1,2}[-/.][Yy]{1,4})"
    r"(?:[ T']+[HhGg]{1,2}[:.][MmIi]{1,2}(?:[:.][Ss]{1,2})?)?"
)
_MEETING = regex(
    rb"(?i)https?://[\w.-]*(?:zoom|webex|lfx)[\w.-]*/[\w./-]{1,80}\?(?:[\w=&;-]{0,80}[&;])?(?:pwd|password)=$"
)


def is_entity_key(sample: Sample) -> bool:
    """Whether a UUID is the key of an entry: `contentTypeKey`, or a constant of the type `Guid`.

    A key that opens something, such as `api_key`, names itself a secret.
    """
    if not sample.is_generic or _UUID.fullmatch(sample.value) is None:
        return False
    typed = _OF_TYPE.search(sample.before) or _ESCAPED_ATTRIBUTE.search(sample.before)
    name = typed[1] if typed else sample.name.encode()
    is_key = typed is not None or sample.name_words[-1:] in (["key"], ["keys"])
    return is_key and find_noun(name) is Noun.KEY


def is_time(sample: Sample) -> bool:
    """Whether the value is a time such as `2024-01-15T10:00:00Z`, or a format such as `Y-m-d H:i:s`."""
    return sample.is_generic and _TIME.fullmatch(sample.value) is not None


def is_invitation(sample: Sample) -> bool:
    """Whether the value is the password in a link to a meeting: everybody who reads the link is invited."""
    return sample.is_generic and _MEETING.search(sample.before) is not None
