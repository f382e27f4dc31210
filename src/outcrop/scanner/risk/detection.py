"""Explain in sentences how certain a detection is: what was for the value, and what was against it.

The sentences are about what the detector stores in a hit while it decides (`Hit.reason_ids`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from outcrop.domain.finding import Confidence
from outcrop.scanner import trace
from outcrop.scanner.generic.names import Noun
from outcrop.scanner.generic.score import MIN_HIGH_POINTS, MIN_LOW_POINTS, MIN_MEDIUM_POINTS, POINTS
from outcrop.scanner.generic.values import Shape
from outcrop.scanner.kinds.classify import KINDS
from outcrop.scanner.rules.model import Strength

STRENGTH_SENTENCES: dict[str, str] = {
    Strength.CHECKSUM: "its checksum is correct",
    Strength.PREFIX: "only this type has its prefix",
    Strength.STRUCTURED: "its format is rare",
    Strength.CONTEXT: "a word next to it names the issuer",
    Strength.GENERIC: "a plain value next to a word such as password",
}
_SENTENCES: dict[str, str] = {
    **STRENGTH_SENTENCES,
    trace.WRONG_CHECKSUM: "its checksum is wrong, so its confidence is low",
    trace.PLACEHOLDER: "it looks like a placeholder, so its confidence is low",
    Noun.PASSWORD: "its name says that it is a password",
    Noun.SECRET: "its name says that it is a secret",
    Noun.KEY: "its name says that it is a key, so it must look random",
    Shape.KNOWN_PUBLIC: "values of this format are public",
    Shape.REFERENCE: "it refers to the value, like a variable or a template",
    Shape.PUBLIC: "its content is public, like a digest or a public key",
    Shape.ENCRYPTED: "it is encrypted or hashed",
    Shape.LOCATION: "it is a path or an address",
    Shape.WORDS: "it is a label or a name",
    Shape.CODE: "it is code",
    Shape.HEX: "it has hexadecimal digits",
    Shape.UUID: "it has the form of a UUID",
    Shape.LETTERS: "it has letters only",
    Shape.NUMBER: "it is a number, a date or a version",
    Shape.PHRASE: "it is text with spaces",
    Shape.NUMBERED_WORDS: "it has words and numbers",
    Shape.ALPHANUMERIC: "letters and digits are mixed",
    Shape.OTHER: "it has letters, digits and other characters",
    "quoted": "it is in quotes",
    "bare": "it is without quotes",
    "element": "it is the content of an element",
    "option": "it is the argument of an option",
    "command": "it is the argument of a command",
    "said": "it is in a sentence",
    "below": "it is alone in a line below its name",
    "header": "it is in a header",
    "call": "it is an argument of a call",
    "direct assignment": "only an operator is between its name and the value",
    "assigned by an operator": "an operator assigns it",
    "name of a secret": "its name alone says that it is secret",
    "line of a configuration": "its line is one of a configuration",
    "typed by a person": "a person may have typed it",
    "too short": "it is too short",
}


class DetectionReason(NamedTuple):
    """A reason for or against a value: its id, its points if there are any, and a sentence."""

    id: str
    points: float | None
    sentence: str


def sentence_of(reason: str) -> str:
    """Return the sentence of a reason's id; that of a kind of text begins with `kind:`."""
    if reason.startswith(trace.KIND) and (kind := KINDS.get(reason.removeprefix(trace.KIND))) is not None:
        return f"kind of text: {kind.reason}" + (f", so at most {kind.limit}" if kind.limit else "")
    return _SENTENCES.get(reason, reason)


def explain_reasons(stored: list[list[Any]], strength: Strength) -> list[DetectionReason]:
    """Return the reasons that are stored with a finding, as sentences; the sum of the points is the last."""
    if strength is Strength.GENERIC:
        return explain_points(tuple((str(reason), float(points)) for reason, points in stored))
    return [DetectionReason(str(reason), None, sentence_of(str(reason))) for reason, _ in stored]


def explain_points(points: trace.Reasons) -> list[DetectionReason]:
    """Return the reasons of a value that was judged by its name; the sum of the points is the last one."""
    reasons = [DetectionReason(id_, value or None, sentence_of(id_)) for id_, value in points]
    total = sum(value for _, value in points)
    if total or any(id_ in POINTS and POINTS[id_] for id_, _ in points):
        limits = f"high from {MIN_HIGH_POINTS:g}, medium from {MIN_MEDIUM_POINTS:g}"
        sentence = f"the sum of the points: {limits}, low from {MIN_LOW_POINTS:g}"
        reasons.append(DetectionReason("points", round(total, 1), sentence))
    return reasons


def explain_stored(detail: Mapping[str, Any] | None, confidence: Confidence | None) -> list[DetectionReason]:
    """Return the reasons for the detection of a stored finding.

    `detail` is what is stored with its score. Findings that were detected by an earlier version have no
    reasons there: then only what decided the score is known. An imported finding without a detail has none.
    """
    if detail is None:
        return []
    strength = Strength(detail["strength"])
    if stored := detail.get("reasons"):
        return explain_reasons(stored, strength)
    ids: list[str] = [str(strength), *([trace.PLACEHOLDER] if detail["placeholder"] else [])]
    if confidence is Confidence.LOW and not detail["placeholder"]:
        return [DetectionReason("low", None, "the detector was not certain")]
    return [DetectionReason(id_, None, sentence_of(id_)) for id_ in ids]
