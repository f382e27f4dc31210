"""Arguments of commands and lines of system files that only look like a password."""

from outcrop.lazy_regex import regex
from outcrop.scanner.kinds.kind import Kind, Sample

COMMAND_ARGUMENT = Kind("command-argument", "an argument of a command: a folder, a port or a file", None)
ACCOUNT_LINE = Kind("account-line", "a line of /etc/passwd or /etc/group", None)

_FOLDER_OPTION = regex(
    rb"\b(?:wget|cp|rsync|install|mkdir|tar|scp|make|patch|ssh|nc|nmap|docker run|pip|curl)\b"
    rb"[^\n|;&]{0,160}[ \t]-{1,2}"
    rb"(?:[pPdDCo]|directory-prefix|parents|output|prefix)[ \t=]{0,3}[\"']?$"
)
_PATH = regex(r"\.{0,2}/?[\w.~$-]+(?:/[\w.~$-]*)*|[0-9:]+")
_ACCOUNT_LINE = regex(rb"(?m)^[a-z_][\w.-]*:[x*!]?:[0-9]+:(?:[0-9]+:|[\w,.-]*$)")
_REST_OF_ACCOUNT_LINE = regex(r"[x*!]:[0-9]+:.*")


def is_command_argument(sample: Sample) -> bool:
    """Whether the value is a folder or a port after an option such as `wget -P DIR`."""
    return (
        _FOLDER_OPTION.search(sample.before) is not None
        and _PATH.fullmatch(sample.value) is not None
        and "sshpass" not in sample.before.decode("latin-1")
    )


def is_account_line(sample: Sample) -> bool:
    """Whether the value is in a line of /etc/passwd, or the rest of one: `name:x:1000:1000:…`."""
    return (
        _REST_OF_ACCOUNT_LINE.fullmatch(sample.value) is not None
        or _ACCOUNT_LINE.match(sample.before.lstrip() + sample.data[sample.start : sample.end] + sample.after)
        is not None
    )
