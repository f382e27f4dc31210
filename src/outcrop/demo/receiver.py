"""A webhook receiver as a customer would run it: verify each signature, print one line per event."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from outcrop.webhooks import VerificationError, verify

HOST = "hooks.acme.example"
URL = f"https://{HOST}/outcrop"


class Receiver:
    """Verify and count events."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self.secret = ""  # set when the webhook is saved
        self.verified: Counter[str] = Counter()

    def receive(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Verify a request and print it; return the HTTP status of the response."""
        try:
            event = verify(body, headers, self.secret)
        except VerificationError as error:
            self._show(f"event  rejected: {error}")
            return 401
        self.verified[event["event"]] += 1
        self._show(f"event  signature valid  {describe_event(event)}")
        return 204


def describe_event(event: Mapping[str, Any]) -> str:
    """Return an event as one line."""
    finding = event["finding"]
    score, verdict = finding.get("composite_score"), finding.get("validation_status", "")
    figures = "" if score is None else f"{score:>3.0f} {verdict}"
    place = finding.get("file_path") or urlsplit(finding.get("source_url") or "").path.rpartition("/")[2]
    texts = [finding["pattern"]["name"], finding.get("matched_text", ""), place]
    return f"{event['event']:<22} {figures:<15}  {'  '.join(text for text in texts if text)}"
