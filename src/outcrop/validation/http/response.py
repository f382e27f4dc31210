"""Judge an issuer's response by the conditions in the rule file."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from outcrop.domain.finding import Confidence, Validation
from outcrop.limits import ISSUER_RETRY_SECONDS, SERVICE_LABEL_LENGTH, SERVICE_LABELS
from outcrop.net.http import HttpResponse
from outcrop.scanner.rules.check_spec import AnswerCondition, AnswerSpec, CapabilitySpec, LabelListSpec
from outcrop.validation.verdict import Verdict, error

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500
_SUCCESS = range(200, 300)
_HTML = {"text/html", "application/xhtml+xml"}


def judge(response: HttpResponse, answers: Sequence[AnswerSpec]) -> Verdict:
    """Return the verdict of the first of the rule's `answers` whose condition the response fulfils.

    An answer does not count if the response may be the sign-in page of a network. If no answer counts, return
    an `error` verdict. Status 429 and 5xx are always an `error` verdict, with the time of Retry-After: they
    say nothing about the credential.
    """
    if response.status == _TOO_MANY_REQUESTS:
        return error("the issuer's rate limit was reached", _retry_after(response))
    if response.status >= _SERVER_ERROR:
        return error(f"the issuer returned a server error (status {response.status})", _retry_after(response))
    for answer in answers:
        if fulfils(response, answer) and not _is_captive_portal(response, answer):
            return Verdict(
                Validation(answer.result),
                Confidence(answer.confidence),
                answer.reason,
                test_mode=answer.test_mode,
            )
    return error(f"the issuer's response says nothing about the credential (status {response.status})")


def _is_captive_portal(response: HttpResponse, answer: AnswerSpec) -> bool:
    """Whether a response that fulfils a "valid" answer may be the sign-in page of a network instead.

    That is so for an HTML page with a success status, if the answer requires no text, JSON value or header.
    """
    has_status_only = not (answer.contains or answer.json_ or answer.header)
    return (
        has_status_only
        and answer.result == "valid"
        and response.status in _SUCCESS
        and response.media_type in _HTML
    )


def _retry_after(response: HttpResponse) -> float | None:
    """Return the seconds in Retry-After, at most ISSUER_RETRY_SECONDS; None if there are none, or a date."""
    text = response.headers.get("Retry-After", "")
    return min(float(text), ISSUER_RETRY_SECONDS) if text.isascii() and text.isdigit() else None


def fulfils(response: HttpResponse, condition: AnswerCondition) -> bool:
    """Whether the response fulfils every part of the condition; parts that the rule leaves empty are true."""
    if condition.status and response.status not in condition.status:
        return False
    if condition.contains is not None and condition.contains.encode() not in response.body:
        return False
    if condition.lacks is not None and condition.lacks.encode() in response.body:
        return False
    for name, text in condition.header.items():
        if text.lower() not in response.headers.get(name, "").lower():
            return False
    if not condition.json_:
        return True
    data = _json_of(response)
    return all(_equals(_value_at(data, path), expected) for path, expected in condition.json_.items())


def _equals(value: Any, expected: Any) -> bool:
    """Whether a JSON value equals the expected one and has its type; "*" expects any value but null."""
    return value is not None if expected == "*" else type(value) is type(expected) and value == expected


def _json_of(response: HttpResponse) -> Any:
    """Return the parsed JSON body; None if the body is not JSON."""
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


def json_object_of(response: HttpResponse) -> dict[str, Any]:
    """Return the JSON object in the body; {} if the body is anything else."""
    data = _json_of(response)
    return data if isinstance(data, dict) else {}


def strings_of(value: Any) -> list[str]:
    """Return the strings of a list that came from a response; an empty list for any other value."""
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def _value_at(data: Any, path: str) -> Any:
    """Return the value at a dotted path of keys and list indexes such as `data.0.id`; None if absent."""
    for step in path.split("."):
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and step.isdigit() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data


def service_labels(response: HttpResponse, capability: CapabilitySpec) -> list[str]:
    """Return the service labels of a capability, each once and at most SERVICE_LABELS.

    Return [] if the response does not fulfil the capability's condition. Without a condition on the status,
    the status must be 2xx.
    """
    if not fulfils(response, capability) or (not capability.status and response.status not in _SUCCESS):
        return []
    labels = [*capability.labels, *(_labels_of_entries(response, capability.each) if capability.each else ())]
    return list(dict.fromkeys(labels))[:SERVICE_LABELS]


def _labels_of_entries(response: HttpResponse, each: LabelListSpec) -> Iterator[str]:
    """Yield a service label for each entry of the list that `each` describes.

    The label is the one in `each.names`, or else `each.prefix` and the entry in the form of `_as_label`, cut
    off at SERVICE_LABEL_LENGTH. With `each.only`, entries that are not in `each.names` are skipped.
    """
    for entry in _entries(response, each):
        if entry in each.names:
            yield each.names[entry]
        elif not each.only and (label := _as_label(entry)):
            yield f"{each.prefix}{label}"[:SERVICE_LABEL_LENGTH]


def _entries(response: HttpResponse, each: LabelListSpec) -> Iterator[str]:
    """Yield the entries of the list that `each` describes, in a header or in the JSON body.

    A header or a JSON string is split at `each.by`. Other forms in JSON: a list of strings, a list of objects
    that have `each.key`, or an object whose keys with a true value are the entries. Nothing is yielded for
    any other value.
    """
    if each.header:
        header = response.headers.get(each.header, "")
        yield from (part.strip() for part in header.split(each.by) if part.strip())
        return
    entries = _value_at(_json_of(response), each.json_)
    if isinstance(entries, str):
        entries = entries.split(each.by)
    if isinstance(entries, dict):
        entries = [name for name, enabled in entries.items() if enabled]
    for entry in entries if isinstance(entries, list) else ():
        text = entry.get(each.key) if isinstance(entry, dict) else entry
        if isinstance(text, str) and text.strip():
            yield text.strip()


def _as_label(text: str) -> str:
    """Return the runs of ASCII letters and digits in the text, in lower case and joined with `_`.

    Return "" if there are none.
    """
    return "_".join("".join(c if c.isascii() and c.isalnum() else " " for c in text.lower()).split())
