"""Whether a name is given its value outright, so that a value which could be anything is the one that the name speaks of."""

import re

from outcrop.scanner.generic.names import is_noun

_SPACES, _QUOTES = b" \t", b"\"'`"
# Nothing but a sign stands between the two, or a type and a sign; or the mark that ends an element's name, or in SQL a space.
_GAP = re.compile(
    rb"""\\{0,3}["'`]?\)?\]?[ \t]*(?:(?::[ \t]?|[ \t])[A-Za-z][\w.<>?*&\[\]]{1,30}[ \t]*(?==))?(?:=>|:=|={1,3}|!==?|:|\|\|=?|\?\?=?|->)"""
    rb"""[ \t]*(?:\(?\r?\n[ \t]+)?[bBuUrRLfN@$]{0,2}\\{0,3}["'`]?|>(?:<!\[CDATA\[)?\s*|[ \t]+["'`]"""
)
_OTHERWISE = re.compile(rb"""["'`][ \t]*:""")  # behind a question, the other answer
_BEGINS = re.compile(rb"""[\s*{,"'`#/-]*""")  # before a name with which its line begins
_ENDS = re.compile(
    rb"""[ \t]*["'`]?[ \t]*(?:[,;})\]]|#|//|\\n|\r?\n|$|</|\*/|-->)"""
)  # behind a value with which its line ends


def is_outright(name: bytes, gap: bytes, line: bytes, *, is_bare: bool) -> bool:
    """Tell whether what is called so is given its value there: as no argument, in no list, and in no sentence."""
    in_sql = name.lower() == b"identified by"
    if not (in_sql or is_noun(name)) or not _GAP.fullmatch(gap) or (b"?" in line and _OTHERWISE.match(gap)):
        return False
    if gap[:1] in _SPACES and gap.strip()[:1] in _QUOTES:
        return in_sql or name.isupper()
    return (
        not is_bare
        or gap == b"="
        or (_BEGINS.fullmatch(line) is not None and not name.lower().endswith(b"pass"))
    )


def goes_on(data: bytes, end: int) -> bool:
    """Tell whether a line goes on behind an unquoted value, as a sentence does."""
    return _ENDS.match(data, end) is None
