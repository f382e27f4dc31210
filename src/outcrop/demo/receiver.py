"""A receiver as an account would run it: it believes a request only when its signature holds, and shows each as one line."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from outcrop.webhooks import VerificationError, verify

HOST = "hooks.acme.example"
URL = f"https://{HOST}/outcrop"


class Receiver:
    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self.secret = ""  # told when the webhook was saved
        self.verified: Counter[str] = Counter()

    def receive(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Take a request; give the status to answer it with."""
        try:
            event = verify(body, headers, self.secret)
        except VerificationError as error:
            self._show(f"event  not believed: {error}")
            return 401
        self.verified[event["event"]] += 1
        self._show(f"event  signature holds  {told(event)}")
        return 204


def told(event: Mapping[str, Any]) -> str:
    """Write an event in one line."""
    finding = event["finding"]
    score, verdict = finding.get("composite_score"), finding.get("validation_status", "")
    figures = "" if score is None else f"{score:>3.0f} {verdict}"
    place = finding.get("file_path") or urlsplit(finding.get("source_url") or "").path.rpartition("/")[2]
    what = [finding["pattern"]["name"], finding.get("matched_text", ""), place]
    return f"{event['event']:<22} {figures:<15}  {'  '.join(part for part in what if part)}"
