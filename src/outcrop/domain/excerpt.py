"""The lines around a credential as a person is shown them: every detected value in them is masked."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Excerpt:
    first: int  # the number of the first line, counted from 1
    lines: tuple[str, ...]
    at: int  # which of them the credential begins in

    @property
    def line(self) -> int:
        """Give the number of the credential's line."""
        return self.first + self.at
