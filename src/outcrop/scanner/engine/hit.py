"""A credential found in a text."""

from dataclasses import dataclass, field

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret
from outcrop.scanner.rules.model import Rule, Strength


@dataclass(slots=True)
class Hit:
    """A credential in a text. `start` and `end` are where its value stands; line and column count from 1."""

    rule: Rule
    secret: Secret
    start: int
    end: int
    strength: Strength
    confidence: Confidence
    placeholder: bool = False
    part: str | None = None
    parts: dict[str, Secret] = field(default_factory=dict)
    encoding: tuple[str, ...] = ()
    line: int = 0
    column: int = 0
    allowed: bool = False
    weighed: bool = False  # by what it looks like: any rule that knows its issuer knows more
    bare: bool = False  # unquoted: a value where configuration is written, an expression where code is
    spared: tuple[int, ...] = ()  # lists of the rule by which it passes in certain files or commits

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end

    def moved(self, by: int) -> "Hit":
        """Give the same hit elsewhere, before it has companions and a line."""
        hit = Hit(
            self.rule,
            self.secret,
            self.start + by,
            self.end + by,
            self.strength,
            self.confidence,
            self.placeholder,
            self.part,
        )
        hit.weighed, hit.bare, hit.spared = self.weighed, self.bare, self.spared
        return hit
