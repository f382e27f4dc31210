"""What one look tells to be no credential, so that it need not be judged.

Most of what stands behind a word for a credential is code, or says that something else goes there, and a file may be full
of it. Of what is dismissed here only names (members, variables of the environment) would ever be judged as more than doubtful.
"""

import re

from outcrop.scanner.generic.placeholders import FILL_IN, WORD
from outcrop.scanner.patterns.re2_match import compile_cached, matches_at, matches_fully

_LONGEST = 400
# What a shell or a template fills in, a member, and a word that says what would stand there, also with a number.
_MEMBER = r"(?:self|this|(?:[A-Za-z_]+\.){0,3}env)\.[A-Za-z_$][\w$.]*"
_WORD = rf"{WORD}|(?i:password|passwort|passwd|passphrase|secret|token)[0-9]{{1,4}}"
_BARE = rf"\$[({{]|(?:{_MEMBER}|{_WORD})(?:[,;]|[)\]}}]{{1,2}}[,;:]?)?(?:\s|$)"
_QUOTED = rf"[\"'`](?:(?s:.*)(?:{FILL_IN})(?s:.*)|{_WORD})[\"'`]"
_QUOTES = b"\"'`"
_ENVIRONMENT = re.compile(rb"(?i:env)[A-Za-z_.:]{0,12}[(\[][\"'`]$")  # what is asked of it is a name


def is_dismissed(data: bytes, left: int, *, is_bare: bool) -> bool:
    """Tell whether what begins here is surely no credential. Of most that is none this does not know it."""
    if is_bare:
        return matches_at(compile_cached(_BARE), data, left, min(left + _LONGEST, len(data)))
    quote = data[left - 1]
    if (
        quote not in _QUOTES or data.find(b"{", left - 5 if left > 5 else 0, left) >= 0
    ):  # of an object the members are judged
        return False
    stop = data.find(quote, left, left + _LONGEST)
    is_asked = data[left - 2] in b"([" and _ENVIRONMENT.search(data, max(0, left - 24), left) is not None
    return stop > 0 and (is_asked or matches_fully(compile_cached(_QUOTED), data, left - 1, stop + 1))
