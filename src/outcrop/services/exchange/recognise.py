"""Find the rule of ours that recognises a credential which another scanner reported.

With it the finding has our type, the value and the parts that a run would store, and a score like any other.
"""

from collections.abc import Callable, Iterable

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.limits import IMPORT_CONTEXT_LENGTH
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.rules.model import Strength
from outcrop.services.exchange.import_schema import ImportedFinding


class Recogniser:
    """Recognises reported credentials by our rules, which are loaded at the first use."""

    def __init__(self, load: Callable[[], RuleSet]) -> None:
        self._load = load
        self._ruleset: RuleSet | None = None

    def recognise(self, imported: ImportedFinding) -> Hit | None:
        """Return the hit on a finding's credential; None if no rule recognises it.

        The bare value and its parts are searched first. If that finds nothing, they are searched beside the
        type that the scanner names, and then in their context. A value of no known issuer counts in its
        context only. A snippet without a known credential counts if one specific rule recognises its value.
        """
        if imported.secret is None:
            return None if imported.snippet is None else self._recognise_snippet(imported.snippet)
        values = [imported.secret, *imported.parts]
        bare = "\n".join(values)
        type_ = imported.pattern.secret_type.replace("-", "_")
        if (hit := self._choose(bare, values)) is None and "generic" not in type_:
            hit = self._choose("\n".join([f'{type_} = "{imported.secret}"', *imported.parts]), values)
        if hit is None and imported.surroundings:
            hit = self._choose(imported.surroundings[:IMPORT_CONTEXT_LENGTH], values, generic=True)
        return hit

    def mask(self, text: str) -> str:
        """Return a text, such as the title of a finding, with the credentials in it masked."""
        for hit in self._find(text):
            text = hit.secret.masked_within(text)
        return text

    def _recognise_snippet(self, snippet: str) -> Hit | None:
        """Return the only specific hit in a text; None if there are none or several."""
        hits = [
            hit for hit in self._find(snippet[:IMPORT_CONTEXT_LENGTH]) if hit.strength is not Strength.GENERIC
        ]
        return hits[0] if len(hits) == 1 and not hits[0].placeholder else None

    def _choose(self, text: str, values: Iterable[str], *, generic: bool = False) -> Hit | None:
        """Return the best hit in a text whose value is one of the values, or part of one, or contains one."""
        hits = [
            hit
            for hit in self._find(text)
            if (generic and not hit.is_doubtful) or hit.strength is not Strength.GENERIC
            if any(reveal(hit.secret) in value or value in reveal(hit.secret) for value in values)
        ]
        return max(
            hits, key=lambda hit: (hit.strength is not Strength.GENERIC, hit.end - hit.start), default=None
        )

    def _find(self, text: str) -> list[Hit]:
        """Return the hits in a text that are credentials, not only parts of one."""
        if self._ruleset is None:
            self._ruleset = self._load()
        hits = find(self._ruleset, text.encode("utf-8", "surrogateescape"), Confidence.LOW)
        return [hit for hit in hits if hit.companion_name is None]
