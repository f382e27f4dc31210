"""Find credentials in one text.

1. Hyperscan reports where each rule's trigger matches (`scan_triggers`).
2. Each form's regular expression confirms or drops the matches near its triggers (`confirm_forms`). Texts
   of kinds that are no credentials are dropped, or lowered (`kinds_of_hits.apply_kinds`).
3. Base64, escapes and archives in the text are decoded, and the decoded text is searched too
   (`find_in_decoded`).
4. Hits without a required companion are dropped (`drop_incomplete`). Overlapping hits are reduced to one per
   value (`keep_best_by_scope`). Companions are stored in the hit of their secret (`attach_companions`) and
   are not reported themselves then (`drop_reported_companions`).
5. The hits of the decoded text are added, unless they are known already (`merge_decoded`).
6. Each hit gets its line, its column and a hint of its context (`locate`).
"""

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import replace

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.lazy_regex import regex
from outcrop.scanner import trace
from outcrop.scanner.engine.companions import attach_companions, drop_incomplete
from outcrop.scanner.engine.confirm import confirm, confirm_generic
from outcrop.scanner.engine.decoded import hash_escaped_range, scan_changed_text, scan_pieces
from outcrop.scanner.engine.hit import Hit, overlap_test, record_lost
from outcrop.scanner.engine.kinds_of_hits import apply_kinds, lower_in_pages
from outcrop.scanner.engine.precedence import drop_reported_companions, keep_best_by_scope, merge_decoded
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import EndsByTrigger, scan_triggers
from outcrop.scanner.finding_context import find_hint
from outcrop.scanner.rules.model import CredentialForm, Rule, Strength
from outcrop.scanner.text.base64_archives import unpack_base64_archives
from outcrop.scanner.text.encodings import (
    DecodedPiece,
    decode_base64_runs,
    decode_escapes,
    find_escaped_ranges,
    is_quoted_printable_equals,
    keep_after_credential_words,
)

# Comments that leave a line out: ours, and those of gitleaks, TruffleHog, Kingfisher, ggshield and
# detect-secrets.
_ALLOW_MARK = regex(
    rb"outcrop:allow|gitleaks:allow|trufflehog:ignore|kingfisher:ignore|\bggignore\b"
    rb"|pragma: ?(?:allow|white)list[ -]secret"
)
MAX_ALLOW_MARK_DISTANCE = 1_000  # bytes to each side of a value; a line can have megabytes
MAX_LOGIN_LENGTH = 200  # bytes from the `://` of an address to its password
MAX_DEPTH = 3  # encodings inside each other
_REST_OF_PASSWORD = regex(rb"%40[^\s\"'`<>/\\@]{0,256}@")
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))  # of UTF-8
NO_VALUE = "no value of its format is here"
_LOW, _GENERIC = Confidence.LOW, Strength.GENERIC  # an enum member costs a lookup at each use

Position = tuple[int, int]  # (line, column), counted from 1


def find(
    ruleset: RuleSet,
    data: bytes,
    min_confidence: Confidence = Confidence.MEDIUM,
    *,
    position: Position = (1, 1),
    ends: EndsByTrigger | None = None,
    explain: bool = False,
) -> list[Hit]:
    """Return the credentials in one text that have at least `min_confidence`, sorted by offset.

    `position` is the line and column of the text's first byte. `ends` are the trigger matches in the text;
    with None they are searched for. With `explain`, also return the values of kinds that are dropped: their
    `kind` is set, and `is_dropped` is true.
    """
    if ends is None:
        ends = scan_triggers(ruleset, data)
    if not ends:
        return []
    hits = _find_hits(ruleset, data, ends, 0, min_confidence, explain=explain)
    hits = [hit for hit in hits if hit.confidence.at_least(min_confidence)]
    for hit in hits:
        hit.floor = min_confidence
    if hits:
        locate(hits, data, position)
    return hits


def _find_hits(
    ruleset: RuleSet,
    data: bytes,
    ends: EndsByTrigger,
    depth: int,
    min_confidence: Confidence,
    *,
    explain: bool = False,
) -> list[Hit]:
    """Return the hits in a text that is inside `depth` encodings (steps 2 to 5), sorted by offset.

    `ends` are the trigger matches in the text. The result also has hits below `min_confidence`, as they
    decide about others; but it is empty if all hits are of low confidence and `min_confidence` is higher.
    With `explain`, it has the values of this text that are dropped because of their kind, too.
    """
    include_low = min_confidence is _LOW
    confirmed = confirm_forms(ruleset, data, ends, include_low=include_low)
    plain, dropped = apply_kinds(confirmed, data, include_low=include_low)
    decoded = (
        find_in_decoded(ruleset, data, ends, depth, min_confidence)
        if depth < MAX_DEPTH and max(ends) >= ruleset.trigger_count
        else []
    )
    lower_in_pages(decoded, data)
    if min_confidence is not _LOW and all(hit.confidence is _LOW for hit in (*decoded, *plain)):
        return []  # a file can be full of near misses
    plain = keep_best_by_scope(drop_incomplete(plain, data))
    companion_offsets = attach_companions(plain, data, min_confidence)
    plain = drop_reported_companions(plain, companion_offsets)
    # A generic value can begin inside the =3D of a quoted-printable mail; after the =3D it is found too.
    plain = [hit for hit in plain if not _begins_in_escape(hit, data)]
    hits = merge_decoded(plain, decoded)
    if explain:
        hits += dropped
    hits.sort(key=lambda hit: (hit.start, hit.end, hit.rule.id))
    return hits


def _begins_in_escape(hit: Hit, data: bytes) -> bool:
    """Whether a generic hit begins with the `3D` of an equals sign in a quoted-printable mail."""
    if hit.strength is not _GENERIC or not data.startswith(b"3D", hit.start):
        return False
    is_escape = is_quoted_printable_equals(data, hit.start)
    if is_escape:
        record_lost(hit, "it begins inside an escape of a mail, and is found after it too")
    return is_escape


def confirm_forms(ruleset: RuleSet, data: bytes, ends: EndsByTrigger, *, include_low: bool) -> list[Hit]:
    """Return the hits of all forms whose trigger matches; `ends` are the trigger matches in `data`.

    Forms without one of their keywords in the text are skipped. Generic forms come last. They skip the values
    that a specific rule has found, also with low confidence; but not those of a rule that depends on a path,
    requires a companion or is from a gitleaks configuration. Unless `include_low`, generic forms drop most
    values of low confidence themselves.
    """
    hits: list[Hit] = []
    generic_forms: list[tuple[Rule, CredentialForm, int]] = []
    specific_spans: list[tuple[int, int]] = []
    lowered = b""
    for number in sorted(ends):
        if number >= ruleset.trigger_count:  # the triggers of encodings
            break
        for rule, form in ruleset.forms[number]:
            trace.begin(rule.id)
            if form.trigger.keywords:
                lowered = lowered or data.lower()
                if not any(keyword.encode() in lowered for keyword in form.trigger.keywords):
                    continue
            if form.strength is _GENERIC:
                generic_forms.append((rule, form, number))
                continue
            confirmed = list(confirm(rule, form, data, ends[number]))
            hits += confirmed
            _record_triggers(form, data, ends[number], confirmed)
            if rule.settles_values:
                specific_spans += [(hit.start, hit.end) for hit in confirmed]
    if generic_forms:
        taken = overlap_test(specific_spans) if specific_spans else None
        for rule, form, number in generic_forms:
            trace.begin(rule.id)
            hits += confirm_generic(rule, form, data, ends[number], taken, include_low=include_low)
    return hits


def _record_triggers(form: CredentialForm, data: bytes, ends: list[int], confirmed: list[Hit]) -> None:
    """Record where a form's trigger matches without a value of its format, for `outcrop why`."""
    if trace.active is None:
        return
    before, after = form.reach
    for end in ends:
        if not any(hit.start <= end + after and hit.end >= end - before for hit in confirmed):
            start = min(end, len(data)) - 1
            trace.record(start, end, reason=NO_VALUE)


def find_in_decoded(
    ruleset: RuleSet, data: bytes, ends: EndsByTrigger, depth: int, min_confidence: Confidence
) -> list[Hit]:
    """Return the hits in the base64, escapes and archives of `data`, at the offsets of the encoded text.

    `ends` are the trigger matches in `data`, which is itself inside `depth` encodings. Ranges with escapes
    but without hits are remembered in `ruleset` and skipped the next time.
    """
    hits: list[Hit] = []
    phases = {phase: ends[number] for phase, number in enumerate(ruleset.base64_triggers) if number in ends}
    pieces = list(decode_base64_runs(data, phases)) if phases else []
    for piece, piece_ends in zip(pieces, scan_pieces(ruleset, pieces), strict=True) if pieces else ():
        hits += _find_in_piece(ruleset, piece, piece_ends, depth, min_confidence)
    escape_ends = ends.get(ruleset.escape_trigger, [])
    if ruleset.escaped_quote_trigger in ends:
        quote_ends = keep_after_credential_words(data, ends[ruleset.escaped_quote_trigger])
        escape_ends = sorted(escape_ends + quote_ends)
    for start, stop in find_escaped_ranges(data, escape_ends) if escape_ends else ():
        range_hash = hash_escaped_range(data, start, stop, depth, min_confidence)
        is_known = range_hash in ruleset.hitless_ranges and trace.active is None
        if is_known or (escaped := decode_escapes(data, start, stop)) is None:
            continue
        piece_ends = scan_changed_text(ruleset, escaped, ends)
        found = _find_in_piece(ruleset, escaped, piece_ends, depth, min_confidence)
        hits += (hit for hit in found if not _is_cut_at_escape(escaped, hit, data))
        if not found:
            ruleset.remember_hitless(range_hash)
    if depth < MAX_DEPTH - 1 and ruleset.archive_trigger in ends:
        hits += _find_in_archives(ruleset, data, ends[ruleset.archive_trigger], min_confidence)
    return hits


def _find_in_piece(
    ruleset: RuleSet, piece: DecodedPiece, ends: EndsByTrigger, depth: int, min_confidence: Confidence
) -> list[Hit]:
    """Return the hits in a decoded piece, at the offsets of the text that it was decoded from.

    `ends` are the trigger matches in the piece, `depth` is the number of encodings around that text. A value
    that the end of the piece may have cut off is dropped.
    """
    with trace.decoding(piece.encoding, piece.original_offset):
        hits = _find_hits(ruleset, piece.text, ends, depth + 1, min_confidence) if ends else []
    at_origin: list[Hit] = []
    for hit in hits:
        if not piece.is_cut_at(hit.start, hit.end):
            start = piece.original_offset(hit.start)
            end = max(start, piece.original_offset(hit.end))
            encoding = (piece.encoding, *hit.encoding)
            at_origin.append(replace(hit, start=start, end=end, encoding=encoding))
    return at_origin


def _is_cut_at_escape(piece: DecodedPiece, hit: Hit, original: bytes) -> bool:
    """Whether a hit is only the beginning of a password with a `%40`, in an address such as `redis://u:a%40b@h`.

    The next `@` ends the password. `original` is the text that the piece was decoded from, and has the hit's
    offsets. The `%40` ends the password if the `://` of the address is escaped too.
    """
    if _REST_OF_PASSWORD.match(original, hit.end) is None:
        return False
    start = piece.decoded_offset(hit.start)
    scheme_end = piece.text.rfind(b"://", max(0, start - MAX_LOGIN_LENGTH), start)
    return scheme_end >= 0 and not piece.has_decoded(scheme_end, scheme_end + 3)


def _find_in_archives(
    ruleset: RuleSet, data: bytes, ends: list[int], min_confidence: Confidence
) -> Iterator[Hit]:
    """Yield the hits in the base64 archives whose first bytes end at `ends`.

    The span of a hit is that of all the base64. Base64 archives in the files of these archives are not
    unpacked.
    """
    for text, start, stop, encoding in unpack_base64_archives(data, ends):
        text_ends = scan_triggers(ruleset, text)
        with trace.decoding("packed", _always(start)):
            hits = _find_hits(ruleset, text, text_ends, MAX_DEPTH - 1, min_confidence) if text_ends else []
        for hit in hits:
            yield replace(hit, start=start, end=stop, encoding=(*encoding, *hit.encoding))


def _always(offset: int) -> trace.OffsetMap:
    """Return a function that maps every offset to this one."""
    return lambda _: offset


def locate(hits: list[Hit], data: bytes, position: Position) -> None:
    """Set the line, the column, `allow_mark` and `context_hint` of each hit.

    `hits` are sorted by offset; `position` is the line and column of the first byte of `data`.
    """
    line, column = position
    is_file_start = position == (1, 1) and data.startswith(BOM_UTF8)
    counted = line_start = len(BOM_UTF8) if is_file_start else 0  # editors do not count the byte order mark
    for hit in hits:
        if lines := data.count(b"\n", counted, hit.start):
            line += lines
            counted = line_start = data.rfind(b"\n", counted, hit.start) + 1
            column = 1
        column += count_characters(data[counted : hit.start])
        counted = hit.start
        hit.line, hit.column = line, column
        hit.allow_mark = _find_allow_mark(data, line_start, hit.start, hit.end)
        before = data[max(line_start, hit.start - MAX_ALLOW_MARK_DISTANCE) : hit.start]
        hit.context_hint = find_hint(before, reveal(hit.secret), placeholder=hit.placeholder)


def _find_allow_mark(data: bytes, line_start: int, start: int, end: int) -> str:
    """Return the mark that allows the value from `start` to `end`; "" if there is none.

    It is in the lines of the value, within MAX_ALLOW_MARK_DISTANCE bytes of it. The first of these lines
    begins at `line_start`.
    """
    line_end = data.find(b"\n", end, end + MAX_ALLOW_MARK_DISTANCE)
    near_start = max(line_start, start - MAX_ALLOW_MARK_DISTANCE)
    near_end = line_end if line_end >= 0 else end + MAX_ALLOW_MARK_DISTANCE
    mark = _ALLOW_MARK.search(data, near_start, near_end)
    name = mark[0].decode("ascii") if mark else ""
    return "pragma: allowlist secret" if name.startswith("pragma") else name


def count_characters(text: bytes) -> int:
    """Return the number of characters in UTF-8 text, which may begin and end inside a character."""
    return len(text) if text.isascii() else len(text.translate(None, _CONTINUATION_BYTES))
