"""The score of a finding from what is stored of it, so that it can be made again at any time."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from outcrop.domain.finding import Finding
from outcrop.scanner.risk.score import VERSION, Evidence, score
from outcrop.scanner.rules.model import Impact, Strength


@dataclass(frozen=True, slots=True)
class Traits:
    """What a score depends on and a finding does not show."""

    strength: Strength
    impact: Impact
    placeholder: bool = False
    test_mode: bool = False
    canary: bool = False
    asked: bool = False  # what the credential opens was asked for

    @classmethod
    def of(cls, detail: dict[str, Any]) -> "Traits":
        """Read traits back from what is stored with a score."""
        flags = {name: bool(detail[name]) for name in ("placeholder", "test_mode", "canary", "asked")}
        return cls(Strength(detail["strength"]), Impact(detail["impact"]), **flags)


def scored(finding: Finding, traits: Traits, *, places: int, now: datetime) -> tuple[float, dict[str, Any]]:
    """Give the score, and what is stored with it: its version, its parts, and the traits."""
    evidence = Evidence(
        finding.validation_status,
        finding.validation_confidence,
        traits.strength,
        traits.impact,
        finding.source_type,
        finding.source_visibility,
        path=finding.file_path,
        placeholder=traits.placeholder,
        test_mode=traits.test_mode,
        canary=traits.canary,
        services=tuple(finding.validation_detail["enabled_services"]),
        services_asked=traits.asked,
        days_since_seen=max(0, (now - finding.last_seen_at).days),
        places=places,
    )
    made = score(evidence)
    return made.total, {"version": VERSION, "parts": made.parts, **asdict(traits)}
