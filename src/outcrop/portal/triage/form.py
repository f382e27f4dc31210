"""What the forms of a triage have in common: action, note, and the message afterwards."""

from collections import Counter

from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import TriageAction, TriageResult, cut_note
from outcrop.domain.secret import MaskedText
from outcrop.limits import NOTE_LENGTH
from outcrop.portal.request import PortalRequest


def read_action(request: PortalRequest) -> TriageAction:
    """Return the action of the form; raise BadInputError if there is no such action."""
    action = next((action for action in TriageAction if action == request.form.get("action")), None)
    if action is None:
        raise BadInputError("no such action")
    return action


async def read_note(request: PortalRequest) -> MaskedText | None:
    """Return the note of the form with credentials masked; None if it is empty."""
    note = request.form.get("note")
    if len(note) > NOTE_LENGTH:
        raise BadInputError(f"a note must have at most {NOTE_LENGTH} characters")
    return cut_note(await request.clean(note)) if note else None


def describe_outcomes(participle: str, outcomes: "Counter[TriageResult]") -> str:
    """Return the message after a bulk action, with the number of findings for each result."""
    sentences = {
        TriageResult.CHANGED: "{} " + participle + ".",
        TriageResult.UNCHANGED: "{} unchanged.",
        TriageResult.REFUSED: "{} cannot be " + participle + " in their current state.",
        TriageResult.MISSING: "{} no longer exist.",
    }
    return " ".join(
        sentence.format(outcomes[outcome]) for outcome, sentence in sentences.items() if outcomes[outcome]
    )
