"""Lines of source text around a credential, with every detected value masked."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Excerpt:
    first: int  # number of the first line, counted from 1
    lines: tuple[str, ...]
    at: int  # index in `lines` of the line in which the credential begins

    @property
    def line(self) -> int:
        """Return the number of the line in which the credential begins."""
        return self.first + self.at
