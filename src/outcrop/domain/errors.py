"""Everything that can go wrong in the product's own words.

OutcropError            carries `code` and `message`; knows nothing of HTTP
├── NotFoundError       no such thing in this account
├── TransitionError     the finding's state does not allow the change
├── BadInputError       what was given cannot be used
├── BusyError           somebody else is changing the same; `retry_after` seconds later it may be free
├── ForbiddenError      the member's role does not allow it
├── SignInError         nobody is signed in by this: `wrong`, `code_needed` or `limited`
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


class BusyError(OutcropError):
    """Nothing was changed. The same may be asked for again."""

    code = "busy"
    retry_after = 1

    def __init__(self) -> None:
        super().__init__(
            "somebody else is changing this right now, and nothing was changed here: try again in a moment"
        )


class ForbiddenError(OutcropError):
    code = "forbidden"


class SignInError(OutcropError):
    """The same words whatever was wrong: they tell nobody whether an e-mail address is known."""

    code = "wrong"
    retry_after = 0

    def __init__(self, message: str = "the e-mail address, the password or the code is wrong") -> None:
        super().__init__(message)


class CodeNeededError(SignInError):
    """The password was right; a code has to come with it."""

    code = "code_needed"

    def __init__(self) -> None:
        super().__init__("the code of the authenticator app is needed too")


class SignInLimitedError(SignInError):
    """Too many failures; not even a right password is looked at for so many seconds."""

    code = "limited"

    def __init__(self, retry_after: int) -> None:
        minutes = -(-retry_after // 60)
        super().__init__(f"too many tries: try again in {minutes} minute{'s' if minutes > 1 else ''}")
        self.retry_after = retry_after


class PlanError(OutcropError):
    code = "plan_required"

    def __init__(self, message: str, minimum: str) -> None:
        super().__init__(message)
        self.minimum = minimum


class OperatorError(OutcropError):
    code = "operator"
