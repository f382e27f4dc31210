"""What the specification says a finding becomes. It imports nothing of Outcrop."""

from dataclasses import dataclass, replace

CLOSED = {"resolve": "resolved", "restrict": "customer_restricted", "false_positive": "false_positive"}
ALLOWED_FROM = {
    "resolve": {"active", "stale", "customer_restricted"},
    "restrict": {"active", "stale"},
    "false_positive": {"active", "stale", "resolved", "customer_restricted"},
}
EVENTS = {"resolve": "finding.resolved", "false_positive": "finding.false_positive"}


@dataclass(frozen=True)
class State:
    """What a finding shows of the decisions about it."""

    status: str
    note: str | None
    suppressed: bool


@dataclass(frozen=True)
class Effect:
    """What an action does to a finding in one state."""

    code: int  # the HTTP status
    state: State
    event: str | None = None


def apply(state: State, action: str, note: str | None) -> Effect:
    """Return what an action of the API does to a finding in this state."""
    if action == "suppress":
        return Effect(200, replace(state, suppressed=True))
    target = CLOSED[action]
    if state.status == target:
        return Effect(200, state)
    if state.status not in ALLOWED_FROM[action]:
        return Effect(400, state)
    return Effect(200, replace(state, status=target, note=note), EVENTS.get(action))


def from_finding(finding: dict[str, object]) -> State:
    """Return the state of a finding as the API shows it."""
    note = finding["resolution_note"]
    return State(
        str(finding["status"]), None if note is None else str(note), finding["suppressed_at"] is not None
    )


class Belief:
    """The states that a finding may have, as far as the answers so far can tell."""

    def __init__(self, state: State) -> None:
        self.states = {state}
        self.is_certain = True  # False after a request without an answer
        self.doubted_at = 0.0  # when that request was sent
        self.least_events: dict[str, int] = {}  # events that must have been queued, by name

    def acknowledge(self, action: str, note: str | None, code: int, status: str | None) -> str | None:
        """Take in an answer. Return what is wrong with it, None if it agrees."""
        effects = [apply(state, action, note) for state in self.states]
        fitting = [e for e in effects if e.code == code and (code != 200 or e.state.status == status)]
        if not fitting:
            wanted = sorted({(effect.code, effect.state.status) for effect in effects})
            return f"{action} was answered {code} {status}; expected one of {wanted}"
        self.states = {effect.state for effect in fitting}
        events = {effect.event for effect in fitting}
        if len(events) == 1 and (event := events.pop()):
            self.least_events[event] = self.least_events.get(event, 0) + 1
        return None

    def doubt(self, action: str, note: str | None) -> None:
        """Take in a request that may or may not have been carried out."""
        self.states |= {apply(state, action, note).state for state in self.states}
        self.is_certain = False

    def settle(self, state: State) -> None:
        """Take in the state that the service shows after a request without an answer."""
        self.states = {state}
        self.is_certain = True
