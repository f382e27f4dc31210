"""What an issuer's answer means, by the rule."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from outcrop.domain.finding import Confidence, Validation
from outcrop.net.http import HttpResponse
from outcrop.scanner.rules.check_spec import AnswerCondition, AnswerSpec, CapabilitySpec, LabelListSpec
from outcrop.validation.verdict import Verdict, error

_LIMITED = 429
_SERVER_FAULT = 500
_OK = range(200, 300)
_LONGEST_PAUSE = 3_600.0
_MOST_LABELS = 100


def judge(answer: HttpResponse, meanings: Sequence[AnswerSpec]) -> Verdict:
    """Give what the first meaning that fits says. A limit and a fault of the server say nothing of the credential, whatever the rule."""
    if answer.status == _LIMITED:
        return error("the issuer limits how often it is asked", _pause(answer))
    if answer.status >= _SERVER_FAULT:
        return error(f"the issuer has a fault (status {answer.status})", _pause(answer))
    for meaning in meanings:
        if holds(answer, meaning) and not _is_a_portal(answer, meaning):
            return Verdict(
                Validation(meaning.result),
                Confidence(meaning.confidence),
                meaning.reason,
                test_mode=meaning.test_mode,
            )
    return error(f"the issuer gave an answer that says nothing of the credential (status {answer.status})")


def _is_a_portal(answer: HttpResponse, meaning: AnswerSpec) -> bool:
    """Tell whether some network's page has answered with 200 in the issuer's place: only the status of it fits."""
    vague = not (meaning.contains or meaning.json_ or meaning.header)
    return (
        vague
        and meaning.result == "valid"
        and answer.status in _OK
        and answer.media_type in {"text/html", "application/xhtml+xml"}
    )


def _pause(answer: HttpResponse) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_PAUSE) if text.isascii() and text.isdigit() else None


def holds(answer: HttpResponse, condition: AnswerCondition) -> bool:
    """Tell whether all that a condition names is so."""
    if condition.status and answer.status not in condition.status:
        return False
    if condition.contains is not None and condition.contains.encode() not in answer.body:
        return False
    if condition.lacks is not None and condition.lacks.encode() in answer.body:
        return False
    if any(
        text.lower() not in answer.headers.get(name, "").lower() for name, text in condition.header.items()
    ):
        return False
    if not condition.json_:
        return True
    data = _json(answer)
    return all(_fits(_at(data, path), wanted) for path, wanted in condition.json_.items())


def _fits(value: Any, wanted: Any) -> bool:
    return value is not None if wanted == "*" else type(value) is type(wanted) and value == wanted


def _json(answer: HttpResponse) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _at(data: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and step.isdigit() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data


def labels_of(answer: HttpResponse, capability: CapabilitySpec) -> list[str]:
    """Give the labels that an answer yields, none where its condition does not hold."""
    if not holds(answer, capability) or (not capability.status and answer.status not in _OK):
        return []
    found = [*capability.labels, *(_each(answer, capability.each) if capability.each else ())]
    return list(dict.fromkeys(found))[:_MOST_LABELS]


def _each(answer: HttpResponse, each: LabelListSpec) -> Iterator[str]:
    for entry in _entries(answer, each):
        if entry in each.names:
            yield each.names[entry]
        elif not each.only and (label := _label(entry)):
            yield f"{each.prefix}{label}"[:80]


def _entries(answer: HttpResponse, each: LabelListSpec) -> Iterator[str]:
    if each.header:
        yield from (
            part.strip() for part in answer.headers.get(each.header, "").split(each.by) if part.strip()
        )
        return
    found = _at(_json(answer), each.json_)
    if isinstance(found, str):
        found = found.split(each.by)
    if isinstance(found, dict):
        found = [name for name, on in found.items() if on]
    for entry in found if isinstance(found, list) else ():
        text = entry.get(each.key) if isinstance(entry, dict) else entry
        if isinstance(text, str) and text.strip():
            yield text.strip()


def _label(text: str) -> str:
    """Write an entry as a label: small letters, digits, and single low lines between them."""
    return "_".join("".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split())
