"""One reference from something on the web to something else."""

from dataclasses import dataclass
from enum import StrEnum


class LinkKind(StrEnum):
    PAGE = "page"  # one link away
    PART = "part"  # loaded with what refers to it: a frame, a manifest, data
    SCRIPT = "script"
    MAP = "map"  # a script's source map
    SITEMAP = "sitemap"
    PLACE = "place"  # nobody refers to it: it is tried


@dataclass(frozen=True, slots=True)
class WebLink:
    url: str  # absolute, in its one spelling
    kind: LinkKind
    sure: bool = True  # it is meant to be there, so that it is worth telling when it is not
