"""The error about one record of an imported file."""

from outcrop.domain.errors import BadInputError


class RecordError(BadInputError):
    """A record is invalid. The message has its position and never its content."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.number = int(where.rpartition(" ")[2])  # of the record or line, from 1
        self.reason = reason
