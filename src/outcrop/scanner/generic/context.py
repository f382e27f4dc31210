"""The name that leads to a value: the nearest one before it, and whether what stands between them leads from one to the other."""

import re
from functools import lru_cache
from typing import NamedTuple

from outcrop.scanner.generic.names import WORDS, Noun, is_noun, noun_of

_OPTION = re.compile(
    rb"\s/(?:p:)?$|(?:^|[\s(,;])[A-Za-z ]{2,12}[:=][ \t]?[^\s/:]+[ \t]?/$"
)  # of a command; or a user beside his password
_OWNER = re.compile(rb"[ \t]*[\"']?[A-Za-z][\w.-]+:")
_WHOLE = re.compile(rb"(?i)(?:passw(?:or)?d|passwort|passphrase|identified by)$")
_SETS = (b"define", b"global", b"set", b"SET", b"setx", b"ENV", b"ARG", b"set -x")
_TAKES = frozenset(word.encode() for word in WORDS["code"]["takes"])
_TYPES = tuple(word.encode() for word in WORDS["code"]["types"])
_IN_SQL = re.compile(rb"(?i:\b(?:create|alter|grant)\b)")
# How a test ended, in a line of its log; and what stands beside a password that is called the same.
_KEYWORD = re.compile(rb"^[\"'],\s*(?!with:|value:)\w+:\s*[\"']?$")
_ATTRIBUTE = re.compile(rb"^[\"']\s+(?!value|default|content|data)[\w:.-]+\s?=\s?[\"']$")
_LISTED = re.compile(rb"[A-Za-z]+(?:[_.-][0-9A-Za-z]+)*")
_SYMBOL = re.compile(rb"(?:^|[\s(,\[]):$")  # before a name in Ruby
PASSED = frozenset({b"PASS", b"XPASS"})
_OUTCOME = re.compile(
    rb"(?m)^[ \t]*(?:(?:--- )?(?:X?PASS|X?FAIL|SKIP|UNSUPPORTED|UNTESTED|UNRESOLVED|ERROR|ok|not ok)\b|=== )"
)
_ACCOUNT = re.compile(
    rb"(?im)^[\s>*-]*(?:user|login|host|name|e?mail|url|port|db|server|account|id)\w*[ \t]*[:=]"
)


def goes_with(name: bytes, gap: bytes, before: bytes, line: bytes) -> bool:
    """Tell whether what stands between a name and a quote leads from one to the other.

    A mere space does so behind a whole word for password and behind an option; a method's argument is the object's value in comparisons.
    """
    if _is_something_else(name, gap, before):
        return False
    if gap[:1] in {b" ", b"\t"} and not gap.strip(b" \t\"'`@bBuUrRLfN$\\"):
        return line[-1:] == b"-" or _WHOLE.search(name) is not None or line.rstrip().endswith(_SETS)
    if gap[:1] == b">":
        return line[-1:] in {b"<", b":"} and not line.endswith((b"?<", b"?P<"))
    if (
        gap.lstrip(b")]")[:1] == b","
    ):  # behind a variable comes another argument, behind a constant or a symbol its value
        return name.rpartition(b".")[2].isupper() or _SYMBOL.search(line) is not None
    if gap[:1] == b"(":
        method = name.rpartition(b".")[2]
        return method.lower() in _TAKES or is_noun(method) or is_type(method)
    return True


def _is_something_else(name: bytes, gap: bytes, before: bytes) -> bool:
    if name.lower() == b"identified by" and not _IN_SQL.search(before):  # a sentence
        return True
    if gap[:1] in {b">", b'"', b"'"} and before.endswith(b"::"):  # what a class is called
        return True
    if before[-1:] in {b"=", b":"} and gap.lstrip(b"\"'` ")[:1] == b"," and not _SYMBOL.search(before[-2:]):
        # itself the value in "password=a-password", "next=…"
        return True
    if _KEYWORD.search(gap) or _ATTRIBUTE.search(gap):  # another's value
        return True
    if before[-1:] == b"$" and gap.strip(b"\"' ") == b"|":  # a shell's pipe
        return True
    return (
        gap[:1] == b"." or gap == b"->" or gap[:2] == b"* "
    )  # a sentence ends; a member; one of a shell's patterns


def is_listed(gap: bytes, value: bytes, behind: bytes) -> bool:
    """Tell whether a name and what follows it are among the words of a list; what is called a value is none of them."""
    return (
        b":" not in gap
        and gap.lstrip(b"\"'`")[:1] == b","
        and behind == b","
        and _LISTED.fullmatch(value) is not None
    )


def is_type(name: bytes) -> bool:
    return name[:1].isupper() and name.lower().endswith(_TYPES)


def is_parameter(line: bytes, gap: bytes) -> bool:
    """Tell by what stands before a name whether it stands for a value in an address, a query or a template; an option has a space.

    With nothing but a word and a colon before it in its line a name is whole, as settings of several programs in one file are.
    """
    if line[-1:] == b":" and gap[:1] == b":" and _OWNER.fullmatch(line):
        return False
    return (line[-1:] in {b":", b"/"} and not _OPTION.search(line)) or b"{{" in line


def is_outcome(data: bytes, start: int, name: bytes) -> bool:
    """Tell whether a name is how a test ended: so did others around it."""
    if name not in PASSED:
        return False
    begin = data.rfind(b"\n", 0, start) + 1
    if data[begin:start].strip() == b"---":
        return True
    others = any(line.start() != begin for line in _OUTCOME.finditer(data))
    return others and _ACCOUNT.search(data) is None


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


_LANGUAGES = frozenset(ending.encode() for ending in WORDS["code"]["languages"])


def is_code_file(path: bytes) -> bool:
    """Tell by a file's name whether it is written in a language that has its texts in quotes."""
    _, dot, ending = path.rpartition(b"/")[2].rpartition(b".")
    return dot != b"" and ending.lower() in _LANGUAGES


# The last word of a kind in what stands before a value.
LAST_WORD = {
    "noun": re.compile(
        rb"(?s:.*)(pass|pwd|pswd|secret|token|cred|psk|api[_.-]?key|contrase|kennwort|wachtwoord|senha|pw|identified by)"
    ),
    "key": re.compile(
        rb"(?s:.*)(key|auth|salt|pepper|nonce|seed|jwt|bearer|cipher|hmac|session|licen[cs]e|otp)"
    ),
}
LAST_PLURAL = re.compile(rb"(?s:.*)(passwords|passwds|secrets|tokens|keys)")
IN_NAMES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-" + bytes(range(0x80, 0x100))
_TAIL = re.compile(rb"[0-9A-Za-z_.\x80-\xff-]*")


class Name(NamedTuple):
    """A name, where it begins, what it says that its value is, what stands behind it, and before it in its line."""

    start: int
    name: bytes
    noun: Noun
    gap: bytes
    line: bytes


ELSEWHERE = Name(0, b"", Noun.KEY, b"", b"")  # it, or what makes it a name, stands in another line


@lru_cache(maxsize=4_096)  # what stands before values comes again where they do not
def led_from(before: bytes, kind: str, is_bare: bool, is_line: bool) -> Name | None:
    """Give the nearest name before a value; None where it is no credential's or does not lead to what stands here, whatever that is."""
    start, end = nearest_name(before, LAST_WORD[kind])
    name = before[start:end]
    noun = noun_of(name)
    if noun is None:
        return None if end else ELSEWHERE
    gap, line = before[end:], before[before.rfind(b"\n", 0, start) + 1 : start]
    if (
        is_bare and name in PASSED and is_line
    ):  # whether it is how a test ended is told by what stands around it
        return ELSEWHERE
    if is_bare and is_parameter(line, gap):
        return None
    if not goes_with(name, gap, before[:start], line):
        return ELSEWHERE if name.lower() == b"identified by" else None
    return Name(start, name, noun, gap, line)


def nearest_name(before: bytes, last_word: re.Pattern[bytes]) -> tuple[int, int]:
    """Give where the last name with such a word in it stands."""
    small = before.lower()
    word = last_word.match(small)
    if word is None:
        return 0, 0
    at = word.start(1)
    start = len(before[:at].rstrip(IN_NAMES))
    if small.startswith(b"identified by", at):
        return start, at + len(b"identified by")
    tail = _TAIL.match(before, at)
    return start, len(before[: tail.end() if tail else at].rstrip(b".-"))
