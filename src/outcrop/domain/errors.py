"""The errors that services raise.

OutcropError            has `code` and `message`; no HTTP status (api/errors.py has the table)
├── NotFoundError       the account has no record with this id or name
├── TransitionError     the finding's state does not allow the change
├── ConflictError       what the caller has seen is no longer so; nothing was changed
├── BadInputError       a value given by the user is invalid
├── BusyError           another request is changing the same record; retry after `retry_after` seconds
│   ├── UnavailableError    the database does not answer a request
│   └── OverdueError        a request took too long
├── ForbiddenError      the member's role does not allow the action
├── SignInError         signing in failed; the code is `wrong`, `code_needed` or `limited`
├── PlanTooLowError     the account's plan does not include the feature; `minimum` is the lowest one with it
└── OperatorError       the machine or its configuration needs an operator; commands print it and exit with 2
    └── DatabaseUnavailableError    the database cannot be reached; it may be reachable later
"""

from typing import ClassVar


class OutcropError(Exception):
    """An expected failure. Its message is shown to the user."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFoundError(OutcropError):
    code = "not_found"


class TransitionError(OutcropError):
    code = "invalid_transition"


class ConflictError(OutcropError):
    code = "conflict"


class BadInputError(OutcropError):
    code = "bad_request"


class BusyError(OutcropError):
    """Another request holds the lock. Nothing was changed, and the request may be repeated."""

    code = "busy"
    retry_after = 1

    def __init__(
        self,
        message: str = "another request is changing this record; nothing was changed, try again in a moment",
    ) -> None:
        super().__init__(message)


class UnavailableError(BusyError):
    """The database does not answer a request at the moment."""

    retry_after = 2

    def __init__(self) -> None:
        super().__init__("the database is not available at the moment; try again in a few seconds")


class OverdueError(BusyError):
    """A request took too long and was ended."""

    retry_after = 2

    def __init__(self) -> None:
        super().__init__("this took too long and was ended; try again in a few seconds")


class ForbiddenError(OutcropError):
    code = "forbidden"


class SignInError(OutcropError):
    """Signing in failed. The message does not say why: it must not reveal whether an address exists."""

    code = "wrong"
    retry_after = 0

    def __init__(self, message: str = "the e-mail address, the password or the code is wrong") -> None:
        super().__init__(message)


class CodeNeededError(SignInError):
    """The password was right, but the account also requires a code of the authenticator app."""

    code = "code_needed"

    def __init__(self, ticket: str = "") -> None:
        super().__init__("the code of the authenticator app is required too")
        self.ticket = ticket  # with it, the code is enough


class TicketExpiredError(SignInError):
    """The time for the code is over, or the password was changed meanwhile: sign in from the start."""

    code = "expired"

    def __init__(self) -> None:
        super().__init__("this took too long: sign in again")


class SignInLimitedError(SignInError):
    """Too many attempts: for `retry_after` seconds further ones are refused, also with the right password."""

    code = "limited"

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many tries: try again in {retry_after} second{'s' if retry_after > 1 else ''}")
        self.retry_after = retry_after


class PlanTooLowError(OutcropError):
    code = "plan_required"

    def __init__(self, message: str, minimum: str) -> None:
        super().__init__(message)
        self.minimum = minimum


class OperatorError(OutcropError):
    code = "operator"


class DatabaseUnavailableError(OperatorError):
    """The database cannot be reached now."""
