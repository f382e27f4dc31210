"""Generate findings for the benchmarks: a large realistic account, the same in every run."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

NOW = datetime(2026, 11, 1, 12, 0, 0, tzinfo=UTC)
SPAN_DAYS = 3 * 365
RARE_TERM = "quokka"  # in one path of 50,000
COMMON_TERM = "payments"  # in one path of 10
TWO_CHARACTERS = "zx"
COMMON_SERVICE = "aws"
RARE_SERVICE = "fastly_purge"  # in one finding of 10,000
COMMON_TYPE, RARE_TYPE = "aws", "type39"  # 30 % of all findings, and about 1 %
COMMON_REPO = "monolith/monolith"  # 4 % of all findings; each of the others has about 200
COMMON_AUTHOR, RARE_AUTHOR = "Robot <robot@example.com>", "Author 7 <author7@example.com>"  # 20 %, 0.02 %

_STATUSES = ["active", "resolved", "false_positive", "customer_restricted", "stale"]
_VALIDATIONS = ["valid", "invalid", "unvalidated", "error", "unreachable"]
_SOURCES = ["repo", "gist", "commit", "endpoint", "js_bundle"]
_SERVICES = [
    COMMON_SERVICE,
    "aws_s3",
    "github_repo",
    "stripe",
    "slack_chat",
    *(f"service{n}_read" for n in range(150)),
]
INCIDENTS = 0.448  # different credentials of one finding: then about 400,000 of a million are an incident
_TYPES = [COMMON_TYPE, "stripe", "github", *(f"type{n}" for n in range(40))]
_TYPE_WEIGHTS = [30, 10, 10, *([1.25] * 40)]
_CONTEXTS = ["production", "test", "example", "documentation", "vendored", None]
_VISIBILITIES = ["public", "internal", "private", "unknown"]
_WORDS = [
    *("config", "deploy", "settings", "api", "auth", "backend", "cache", "client", "core", "data", "env"),
    *("helpers", "infra", "jobs", "lib", "main", "ops", "server", "test", "web"),
]


def make_lines(count: int, seed: int) -> Iterator[bytes]:
    """Yield findings as lines of JSON."""
    dice, more = random.Random(seed), random.Random(seed + 1_000_000)
    repositories = [f"{dice.choice(_WORDS)}-{n % 200}/{dice.choice(_WORDS)}-{n}" for n in range(5000)]
    for _ in range(count):
        finding = _make_finding(dice, more, repositories)
        finding["secret"] = f"made-up-{seed}-{more.randrange(int(count * INCIDENTS) or 1):016d}"
        yield json.dumps(finding, separators=(",", ":")).encode() + b"\n"


def write_file(path: Path, count: int, seed: int) -> None:
    """Write a file of findings that `outcrop import` reads."""
    with path.open("wb") as file:
        file.writelines(make_lines(count, seed))


def _make_finding(dice: random.Random, more: random.Random, repositories: list[str]) -> dict[str, Any]:
    """Return one random finding in the format of `outcrop import`. `more` decides about its attributes."""
    validation = dice.choices(_VALIDATIONS, weights=[35, 25, 25, 5, 10])[0]
    status = dice.choices(_STATUSES, weights=[60, 20, 8, 4, 8])[0]
    repository = dice.choice(repositories)
    if more.random() < 0.04:
        repository = COMMON_REPO
    type_ = more.choices(_TYPES, _TYPE_WEIGHTS)[0]
    author = more.randrange(5000)
    path = "/".join(dice.choices(_WORDS, k=3)) + f"/{dice.getrandbits(24):06x}.py"
    if dice.random() < 0.1:
        path = f"{COMMON_TERM}/{path}"
    if dice.random() < 0.00002:
        path = f"{RARE_TERM}/{path}"
    if dice.random() < 0.02:
        path = f"{TWO_CHARACTERS}/{path}"
    services = []
    if validation == "valid":
        services = [COMMON_SERVICE] if dice.random() < 0.55 else []
        services += dice.sample(_SERVICES, k=dice.randrange(3))
    if dice.random() < 0.0001:
        services.append(RARE_SERVICE)
    first = NOW - timedelta(seconds=dice.randrange(SPAN_DAYS * 86400))
    last = first + timedelta(seconds=dice.randrange(int((NOW - first).total_seconds()) + 1))
    number = dice.randrange(1, 2000)
    finding: dict[str, Any] = {
        "id": str(UUID(int=dice.getrandbits(128), version=4)),
        "status": status,
        "validation_status": validation,
        "validation_confidence": "low" if validation == "unvalidated" else "high",
        "validation_detail": {"enabled_services": sorted(set(services))},
        "composite_score": round(dice.random() * 100, 1),
        "source_type": dice.choices(_SOURCES, weights=[50, 5, 25, 10, 10])[0],
        "source_visibility": more.choices(_VISIBILITIES, [60, 10, 25, 5])[0],
        "source_url": f"https://github.com/{repository}/blob/{dice.getrandbits(160):040x}/{path}#L{number}",
        "repo_full_name": repository,
        "file_path": path,
        "line_number": number,
        "pattern": {"name": f"Key of {type_}", "secret_type": type_},
        "rule": f"{type_}_key",
        "commit": f"{more.getrandbits(160):040x}",
        "author": COMMON_AUTHOR if author % 5 == 0 else f"Author {author} <author{author}@example.com>",
        "committed_at": first.isoformat(),
        "context": more.choices(_CONTEXTS, [55, 20, 5, 5, 10, 5])[0],
        "first_seen_at": first.isoformat(),
        "last_seen_at": last.isoformat(),
        "seen_count": dice.randrange(1, 50),
    }
    if status == "resolved":
        finding["resolved_at"] = last.isoformat()
        finding["resolution_evidence"] = {"auto_resolved": True, "resolved_by": None}
    if dice.random() < 0.05:
        finding["suppressed_at"] = last.isoformat()
    return finding
