"""Describe the hits of a local scan as findings.

The same input gives the same findings, with the same ids and in the same order, on every machine.
"""

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from outcrop.domain.finding import (
    Confidence,
    FindingContext,
    SourceType,
    Status,
    Validation,
    severity_of,
)
from outcrop.domain.place import SERVED_TYPES, line_address
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.masking import find_in_texts, is_masked_in_paths
from outcrop.scanner.finding_context import decide_context
from outcrop.scanner.risk.score import Evidence, score
from outcrop.scanner.rules.allowlist import is_allowed_at
from outcrop.services.local_scan.allowed import digest_of, hash_value
from outcrop.services.local_scan.options import IGNORE_FILE, ScanOptions, TargetInfo
from outcrop.sources.located import LocatedHit, printable_path

if TYPE_CHECKING:
    from outcrop.validation.verdict import Verdict

_BASELINE = "--baseline"  # what leaves a known finding out
_NAMESPACE = uuid.UUID("6f3b1f0e-6f0a-5d0c-9c55-0c1d3f0f7a11")  # of the findings' ids


class LocalFinding(NamedTuple):
    """A finding of a local scan. `fields` are printed; they contain no credential."""

    fields: dict[str, Any]
    hit: Hit
    evidence: Evidence  # the inputs of its score
    path: str | None = None  # as the file system has it; `file_path` in the fields is always one line
    left_out_by: str = ""  # the mark, the file or the option that leaves it out
    unmasked: dict[str, str | None] = {}  # noqa: RUF012 - never changed; path and URL, as a report has them

    @property
    def secret(self) -> Secret:
        """The raw credential."""
        return self.hit.secret

    @property
    def is_hidden(self) -> bool:
        """Whether a mark, a file or the baseline leaves it out."""
        return self.left_out_by != ""

    @property
    def is_valid(self) -> bool:
        """Whether the issuer has confirmed that the credential works."""
        return self.evidence.validation is Validation.VALID

    @property
    def is_production(self) -> bool:
        """Whether its file is not one of tests, examples, documentation or vendored code."""
        return self.fields["context"] is FindingContext.PRODUCTION


def describe_findings(
    located: Iterable[LocatedHit],
    target: TargetInfo,
    options: ScanOptions,
    baseline: Counter[str],
    left_out: Counter[str],
) -> Iterator[LocalFinding]:
    """Yield the hits of a target as findings, in order of their places.

    Those that are left out are counted in `left_out`, by what leaves them out. With `options.keeps_hidden`
    they are yielded too, as hidden findings at the end. A hit whose fingerprint is in the baseline is
    subtracted from it: files of two targets can have the same path, so the baseline may contain a fingerprint
    several times. Credentials that are only in a path, a URL or an author are masked there too.
    """
    in_scope = sorted((hit for hit in located if not _is_allowed_by_rule(hit)), key=_place)
    hits: list[LocatedHit] = []
    marked: list[LocatedHit] = []
    marks: list[str] = []
    for hit in in_scope:
        mark = _left_out_by(hit, target, options)
        if mark is None:
            hits.append(hit)
        else:
            left_out[mark] += 1
            marked.append(hit)
            marks.append(mark)
    others = find_in_texts(options.ruleset, (text for hit in in_scope for text in _texts(hit)))
    in_paths = [hit.secret for hit in others if is_masked_in_paths(hit)]
    in_authors = [hit.secret for hit in others]
    place_counts = Counter(reveal(hit.hit.secret) for hit in hits)
    known: list[tuple[LocatedHit, str]] = []
    for hit, fingerprint in zip(hits, compute_fingerprints(hits, in_paths), strict=True):
        if baseline[fingerprint]:
            baseline[fingerprint] -= 1
            left_out[_BASELINE] += 1
            known.append((hit, fingerprint))
        else:
            yield _describe(hit, fingerprint, target, options, place_counts, in_paths, in_authors)
    if options.keeps_hidden:
        hidden = [*known, *zip(marked, compute_fingerprints(marked, in_paths), strict=True)]
        reasons = [_BASELINE] * len(known) + marks
        for (hit, fingerprint), reason in zip(hidden, reasons, strict=True):
            finding = _describe(hit, fingerprint, target, options, place_counts, in_paths, in_authors)
            yield finding._replace(left_out_by=reason)


def _describe(  # noqa: PLR0917 - called in two places, with the same names
    hit: LocatedHit,
    fingerprint: str,
    target: TargetInfo,
    options: ScanOptions,
    place_counts: Counter[str],
    in_paths: Sequence[Secret],
    in_authors: Sequence[Secret],
) -> LocalFinding:
    """Return a hit as a finding. `place_counts` has the number of places of each reported credential.

    `in_paths` and `in_authors` are the credentials that are masked there.
    """
    evidence = _evidence(hit, target, max(place_counts[reveal(hit.hit.secret)], 1))
    mask = _path_mask(hit.hit, in_paths, reveals=options.reveal)
    path = mask(os.fsdecode(hit.path)) if hit.path else None
    fields = _printed_fields(hit, fingerprint, target, evidence, mask)
    if fields["author"] is not None and not options.reveal:
        fields["author"] = _mask_all(fields["author"], [hit.hit.secret, *in_authors])
    unmasked = {"source_url": _url_of(hit, target), "file_path": evidence.path, "repo": target.repo}
    return LocalFinding(fields, hit.hit, evidence, path, unmasked=unmasked)


def _path_mask(hit: Hit, in_paths: Sequence[Secret], *, reveals: bool = False) -> Callable[[str], str]:
    """Return a function that masks in a path or URL: the hit's credential, and those only in paths."""
    own = [hit.secret] if is_masked_in_paths(hit) else []
    return str if reveals else partial(_mask_all, secrets=[*own, *in_paths])


def _mask_all(text: str, secrets: Iterable[Secret]) -> str:
    """Return the text with these secrets masked, the longest first: one may be a part of another."""
    for secret in sorted(secrets, key=lambda secret: -len(reveal(secret))):
        text = secret.masked_within(text)
    return text


def _texts(located: LocatedHit) -> Iterator[str]:
    """Yield the path, the address and the author of a hit, as far as they are known."""
    if located.path:
        yield printable_path(located.path)
    if located.url:
        yield located.url
    if located.origin and located.origin.author:
        yield located.origin.author


def _left_out_by(located: LocatedHit, target: TargetInfo, options: ScanOptions) -> str | None:
    """Return what leaves a hit out; None if only a fingerprint of the baseline can."""
    hit = located.hit
    reason = _mark_in_source(located, target) if not options.ignore_marks else None
    if reason is None and options.allowed and (hit.rule.id, digest_of(hit)) in options.allowed:
        reason = "--allow"
    if reason is None and options.known.has(located):
        reason = _BASELINE
    return reason


def _is_allowed_by_rule(located: LocatedHit) -> bool:
    """Whether the rule's own allowlist allows a hit, which is then no finding."""
    hit = located.hit
    commit = located.origin.commit if located.origin else ""
    return is_allowed_at(hit.rule.allowlists, hit.allowlist_numbers, located.path or b"", commit)


def _mark_in_source(located: LocatedHit, target: TargetInfo) -> str | None:
    """Return the mark or the name of the file in the source that leaves a hit out; None if there is none."""
    if located.hit.allow_mark:
        return located.hit.allow_mark
    if located.file_path and target.is_ignored(located.file_path):
        return IGNORE_FILE
    return target.marks.reason(located)


def _place(located: LocatedHit) -> tuple[bytes, int, int, str]:
    """Return the sort key of a hit: path, line, column, rule."""
    return located.path or b"", located.hit.line, located.hit.column, located.hit.rule.id


def compute_fingerprints(located: list[LocatedHit], in_paths: Sequence[Secret] = ()) -> list[str]:
    """Return a name for each hit: its path, 20 bits of its value's SHA-256, and a number.

    The number distinguishes values of a path that share these bits, in the order of their digests. So a moved
    line changes no name, and a name does not confirm a guessed password. Credentials `in_paths` are masked.
    """
    digests = [hash_value(hit.hit) for hit in located]
    names = [
        f"{_path_mask(hit.hit, in_paths)(printable_path(hit.path or b''))}:{digest[:5]}"
        for hit, digest in zip(located, digests, strict=True)
    ]
    counts: dict[str, int] = {}
    numbers = [0] * len(located)
    for index in sorted(range(len(located)), key=lambda index: (names[index], digests[index])):
        counts[names[index]] = counts.get(names[index], 0) + 1
        numbers[index] = counts[names[index]]
    return [f"{name}:{number}" for name, number in zip(names, numbers, strict=True)]


def _evidence(located: LocatedHit, target: TargetInfo, places: int) -> Evidence:
    """Return the score inputs of a hit that is not validated; `places` is how often its value occurs."""
    git_type = SourceType.REPO if located.at_tip else SourceType.COMMIT
    return Evidence(
        Validation.UNVALIDATED,
        Confidence.LOW,
        located.hit.strength,
        located.hit.rule.impact,
        located.source_type or (SourceType.GIST if target.gist else git_type),
        target.visibility,
        path=None if located.path is None else printable_path(located.path),
        placeholder=located.hit.placeholder,
        places=places,
    )


def _printed_fields(
    located: LocatedHit,
    fingerprint: str,
    target: TargetInfo,
    evidence: Evidence,
    mask: Callable[[str], str],
) -> dict[str, Any]:
    """Return the fields of a finding as they are printed; `mask` masks the credential in path and URL."""
    hit, origin = located.hit, located.origin
    committed_at = origin.committed_at if origin else None
    url = _url_of(located, target)
    scored = score(evidence)
    return {
        "id": uuid.uuid5(_NAMESPACE, f"{printable_path(os.fsencode(target.source))}\0{fingerprint}"),
        "status": Status.ACTIVE,
        "validation_status": evidence.validation,
        "validation_confidence": evidence.validation_confidence,
        "validation_detail": {"enabled_services": []},
        "composite_score": scored.total,
        "source_type": evidence.source_type,
        "source_visibility": evidence.visibility,
        "source_url": mask(url) if url else None,
        "repo_full_name": target.full_name,
        "file_path": evidence.path and mask(evidence.path),
        "line_number": hit.line,
        "matched_text": hit.secret.masked(),
        "pattern": {"name": hit.rule.name, "secret_type": hit.rule.secret_type},
        "first_seen_at": committed_at,
        "last_seen_at": committed_at,
        "seen_count": 1,
        "resolved_at": None,
        "resolution_note": None,
        "resolution_evidence": None,
        "suppressed_at": None,
        "severity": severity_of(scored.total),
        "updated_at": None,
        "incident_id": None,
        "assignee": None,
        "fingerprint": fingerprint,
        "rule": hit.rule.id,
        "confidence": hit.confidence,
        "detection_confidence": hit.confidence,
        "context": decide_context(
            evidence.path,
            hint=hit.context_hint,
            is_password=hit.rule.password,
            is_served=evidence.source_type in SERVED_TYPES,
        ),
        "column": hit.column,
        "lines": hit.all_lines,
        "lines_total": hit.lines_total,
        "current_line": located.current_line,
        "current_lines": located.current_lines,
        "allowed_in_source": False,
        "commit": origin.commit if origin else None,
        "author": origin.author if origin else None,
        "committed_at": committed_at,
        "unreachable": located.unreachable,
        "encoding": list(hit.encoding),
        "parts": {name: part.masked() for name, part in sorted(hit.companions.items())},
        "score": scored.parts,
    }


def _url_of(located: LocatedHit, target: TargetInfo) -> str | None:
    """Return the address of a hit's line; None if the target has no address."""
    commit = located.origin.commit if located.origin else None
    if located.url or not target.url:
        return located.url or target.url
    if target.host is None:
        return line_address(target.url, commit, located.path, located.hit.line)
    from outcrop.sources.code_host.registry import line_url  # noqa: PLC0415 - for remote targets only

    return line_url(target.host, target.url, commit, located.path, located.hit.line)


def with_verdict(finding: LocalFinding, verdict: "Verdict") -> LocalFinding:
    """Return the finding with a verdict and a new score, without a time: equal answers give equal output."""
    evidence = finding.evidence._replace(
        validation=verdict.status,
        validation_confidence=verdict.confidence,
        services=verdict.services,
        services_asked=verdict.services_checked,
        test_mode=verdict.test_mode,
        canary=verdict.canary,
    )
    scored = score(evidence)
    changed = {
        "validation_status": verdict.status,
        "validation_confidence": verdict.confidence,
        "validation_detail": {"enabled_services": list(verdict.services), "reason": verdict.reason},
        "composite_score": scored.total,
        "severity": severity_of(scored.total),
        "score": scored.parts,
    }
    return finding._replace(fields=finding.fields | changed, evidence=evidence)
