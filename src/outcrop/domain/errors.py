"""Everything that can go wrong in the product's own words.

OutcropError            carries `code` and `message`; knows nothing of HTTP
├── NotFoundError       no such thing in this account
├── TransitionError     the finding's state does not allow the change
├── BadInputError       what was given cannot be used
├── PlanError           the account's plan does not include it; `minimum` is the smallest that does
└── OperatorError       the machine or its configuration needs an operator; the command line prints it and exits with 2
"""

from typing import ClassVar


class OutcropError(Exception):
    """An expected failure, told to the person who caused it."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFoundError(OutcropError):
    code = "not_found"


class TransitionError(OutcropError):
    code = "invalid_transition"


class BadInputError(OutcropError):
    code = "bad_request"


class PlanError(OutcropError):
    code = "plan_required"

    def __init__(self, message: str, minimum: str) -> None:
        super().__init__(message)
        self.minimum = minimum


class OperatorError(OutcropError):
    code = "operator"
