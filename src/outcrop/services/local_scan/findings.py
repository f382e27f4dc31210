"""What was found, numbered, ordered and describe_findings: the same input gives the same findings with the same ids, on any machine."""

import hashlib
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from outcrop.domain.finding import Confidence, SourceType, Status, Validation
from outcrop.domain.place import line_address
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.risk.score import Evidence, score
from outcrop.scanner.rules.allowlist import is_allowed_at
from outcrop.services.local_scan.options import TargetInfo
from outcrop.sources.located import LocatedHit, printable_path

if TYPE_CHECKING:
    from outcrop.validation.verdict import Verdict

_NAMESPACE = uuid.UUID("6f3b1f0e-6f0a-5d0c-9c55-0c1d3f0f7a11")


class LocalFinding(NamedTuple):
    """A finding of a local scan; `fields` is what is shown, the credential and what it was found with stand apart from it."""

    fields: dict[str, Any]
    hit: Hit
    evidence: Evidence
    path: str | None = None  # as the file system or git has it, where `file_path` must stay on one line

    @property
    def secret(self) -> Secret:
        return self.hit.secret

    @property
    def is_valid(self) -> bool:
        return self.evidence.validation is Validation.VALID


def describe_findings(
    located: Iterable[LocatedHit], place: TargetInfo, known: Counter[str]
) -> Iterator[LocalFinding]:
    """Number, order and describe what was found; allowed, ignored and known ones are left out.

    Files of two targets can have the same path: what is known accounts for as many findings as it has, and those are taken off.
    """
    kept = [
        one
        for one in located
        if not one.hit.allowed and not (one.file_path and place.ignored(one.file_path)) and not _passes(one)
    ]
    kept.sort(key=_order)
    spread = Counter(reveal(one.hit.secret) for one in kept)
    prints = fingerprints(kept)
    for one, fingerprint in zip(kept, prints, strict=True):
        if known[fingerprint]:
            known[fingerprint] -= 1
        else:
            evidence = _evidence(one, place, spread[reveal(one.hit.secret)])
            path = one.hit.secret.masked_within(os.fsdecode(one.path)) if one.path else None
            yield LocalFinding(_fields(one, fingerprint, place, evidence), one.hit, evidence, path)


def _passes(one: LocatedHit) -> bool:
    return is_allowed_at(
        one.hit.rule.allowlists,
        one.hit.allowlist_numbers,
        one.path or b"",
        one.origin.commit if one.origin else "",
    )


def _order(one: LocatedHit) -> tuple[bytes, int, int, str]:
    return one.path or b"", one.hit.line, one.hit.column, one.hit.rule.id


def fingerprints(located: list[LocatedHit]) -> list[str]:
    """Name findings so that a moved line changes nothing and a guessed password is not confirmed.

    The name is the path, 20 bits of the value's digest, and a counter for values that share those bits, in the
    order of their whole digests, which does not depend on where they stand.
    """
    digests = [
        hashlib.sha256(reveal(one.hit.secret).encode("utf-8", "surrogateescape")).hexdigest()
        for one in located
    ]
    names = [
        f"{one.hit.secret.masked_within(printable_path(one.path or b''))}:{digest[:5]}"
        for one, digest in zip(located, digests, strict=True)
    ]
    order = sorted(range(len(located)), key=lambda at: (names[at], digests[at]))
    counted: dict[str, int] = {}
    numbers = [0] * len(located)
    for at in order:
        counted[names[at]] = counted.get(names[at], 0) + 1
        numbers[at] = counted[names[at]]
    return [f"{name}:{number}" for name, number in zip(names, numbers, strict=True)]


def _evidence(one: LocatedHit, place: TargetInfo, places: int) -> Evidence:
    """Give what the score is made from while nobody has been asked."""
    source_type = one.source_type or (
        SourceType.GIST if place.gist else SourceType.REPO if one.at_tip else SourceType.COMMIT
    )
    path = None if one.path is None else one.hit.secret.masked_within(printable_path(one.path))
    return Evidence(
        Validation.UNVALIDATED, Confidence.LOW, one.hit.strength, one.hit.rule.impact, source_type, place.visibility,
        path=path, placeholder=one.hit.placeholder, places=places,
    )  # fmt: skip


def _fields(one: LocatedHit, fingerprint: str, place: TargetInfo, evidence: Evidence) -> dict[str, Any]:
    hit, origin = one.hit, one.origin
    at = datetime.fromtimestamp(origin.at, UTC) if origin and origin.at is not None else None
    url = one.url or (
        place.url and line_address(place.url, origin.commit if origin else None, one.path, hit.line)
    )
    made = score(evidence)
    return {
        "id": uuid.uuid5(_NAMESPACE, f"{printable_path(os.fsencode(place.source))}\0{fingerprint}"),
        "status": Status.ACTIVE,
        "validation_status": evidence.validation,
        "validation_confidence": evidence.validation_confidence,
        "validation_detail": {"enabled_services": []},
        "composite_score": made.total,
        "source_type": evidence.source_type,
        "source_visibility": evidence.visibility,
        "source_url": hit.secret.masked_within(url) if url else None,
        "repo_full_name": place.full_name,
        "file_path": evidence.path,
        "line_number": hit.line,
        "matched_text": hit.secret.masked(),
        "pattern": {"name": hit.rule.name, "secret_type": hit.rule.secret_type},
        "first_seen_at": at,
        "last_seen_at": at,
        "seen_count": 1,
        "resolved_at": None,
        "resolution_note": None,
        "resolution_evidence": None,
        "suppressed_at": None,
        "fingerprint": fingerprint,
        "rule": hit.rule.id,
        "confidence": hit.confidence,
        "column": hit.column,
        "current_line": one.current_line,
        "allowed_in_source": False,
        "commit": origin.commit if origin else None,
        "author": origin.author if origin else None,
        "committed_at": at,
        "unreachable": one.unreachable,
        "encoding": list(hit.encoding),
        "parts": {name: part.masked() for name, part in sorted(hit.companions.items())},
        "score": made.parts,
    }


def with_verdict(finding: LocalFinding, verdict: "Verdict") -> LocalFinding:
    """Give a finding with a verdict and the score that follows; no time is told, so that the same answers give the same bytes."""
    evidence = finding.evidence._replace(
        validation=verdict.status,
        validation_confidence=verdict.confidence,
        services=verdict.services,
        services_asked=verdict.services_checked,
        test_mode=verdict.test_mode,
        canary=verdict.canary,
    )
    made = score(evidence)
    told = {
        "validation_status": verdict.status,
        "validation_confidence": verdict.confidence,
        "validation_detail": {"enabled_services": list(verdict.services), "reason": verdict.reason},
        "composite_score": made.total,
        "score": made.parts,
    }
    return finding._replace(fields=finding.fields | told, evidence=evidence)
