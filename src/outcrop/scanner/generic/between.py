"""What stands before a name and between it and its value: whether it leads from one to the other."""

import re

from outcrop.scanner.generic.names import WORDS, is_noun

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
