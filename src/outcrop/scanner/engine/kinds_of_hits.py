"""Drop or lower the hits whose value is text of a kind that is no credential (`scanner.kinds`)."""

from dataclasses import replace

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.hit import Hit, record_lost
from outcrop.scanner.kinds.classify import classify
from outcrop.scanner.kinds.kind import Kind, Sample
from outcrop.scanner.kinds.paths import kind_at
from outcrop.scanner.kinds.web_pages import SAVED_PAGE, is_in_saved_page
from outcrop.scanner.rules.model import Strength


def apply_kinds(hits: list[Hit], data: bytes, *, include_low: bool) -> tuple[list[Hit], list[Hit]]:
    """Return the hits in `data` that are kept, and those that are dropped because of their kind.

    Unless `include_low`, hits of low confidence are kept as they are: nobody sees them. Set `kind` of each
    other hit that has one. A hit that is kept in spite of its kind gets at most the confidence of this kind.
    """
    kept: list[Hit] = []
    dropped: list[Hit] = []
    for hit in hits:
        is_unseen = hit.confidence is Confidence.LOW and not include_low
        kind = None if is_unseen or hit.companion_name else _kind_of(hit, data)
        if kind is None:
            kept.append(hit)
            continue
        hit.kind = kind.id
        if kind.limit is None:
            hit.confidence = Confidence.LOW
            dropped.append(hit)
            record_lost(hit, kind.reason)
            continue
        if hit.confidence.at_least(kind.limit):
            hit.confidence = kind.limit
        kept.append(hit)
    return kept, dropped


def lower_in_pages(hits: list[Hit], data: bytes) -> None:
    """Lower the hits of decoded text, with offsets in `data`, that are values of a saved web page.

    The decoded text does not show that it comes from a page.
    """
    for hit in hits:
        if not hit.kind and not hit.companion_name and is_in_saved_page(_sample(hit, data)):
            hit.kind, hit.confidence = SAVED_PAGE.id, Confidence.LOW


def lower_at(hit: Hit, path: bytes) -> Hit | None:
    """Return a hit as it counts in the file at `path`; None if its confidence is too low there.

    A hit that was found by its name is lowered in lock files and in translations. The hit itself, which may
    be in several files, does not change.
    """
    if not hit.judged or hit.kind:
        return hit
    kind = kind_at(path, reveal(hit.secret))
    if kind is None:
        return hit
    lowered = replace(hit, kind=kind.id, confidence=Confidence.LOW)
    return lowered if lowered.confidence.at_least(hit.floor) else None


def _kind_of(hit: Hit, data: bytes) -> Kind | None:
    """Return the kind of text that the value of a hit is; None if it may be a credential."""
    return classify(_sample(hit, data))


def _sample(hit: Hit, data: bytes) -> Sample:
    """Return the value of a hit with the text around it."""
    span, value = (hit.start, hit.end), reveal(hit.secret)
    has_prefix = hit.strength in {Strength.CHECKSUM, Strength.PREFIX}
    return Sample(data, span, value, hit.rule.id, is_generic=hit.judged, has_prefix=has_prefix)
