"""Read the text around a value: the name before it, and the separator between the name and the value.

1. `find_name_before` finds the nearest name with a word for a credential, and checks that the separator leads
   from the name to the value.
2. `is_direct_assignment` checks for the strongest link: nothing but an operator in the separator.
3. `is_list_item`, `is_test_result` and `has_text_after` recognise values that are not assigned at all.

`is_code_file` knows the files in which an unquoted value is an expression.

Parameters of several functions:

- `name` is the name of the value, `separator` the text between the name and the first character of the value,
  with the opening quote.
- `line` is the part of the name's line before the name.
- `before` is the text before the value in `find_name_before` and `find_nearest_name`, otherwise the text
  before the name.
- `judge` is the setting `judge` of the rule, `noun` or `key`; `is_bare` says that the value is unquoted.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import Noun, ends_with_noun, find_noun

# Match a text in lower case up to its last word for a credential, by the judge of the rule.
LAST_WORD = {
    "noun": regex(
        rb"(?s:.*)(pass|pwd|pswd|secret|token|cred|psk|api[_.-]?key|contrase|kennwort|wachtwoord|senha|pw"
        rb"|identified by)"
    ),
    "key": regex(
        rb"(?s:.*)(key|auth|salt|pepper|nonce|seed|jwt|bearer|cipher|hmac|session|licen[cs]e|otp"
        rb"|access(?![a-z]))"
    ),
}
LAST_PLURAL = regex(rb"(?s:.*)(passwords|passwds|secrets|tokens|keys)")
NAME_BYTES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-" + bytes(range(0x80, 0x100))
TEST_PASSED = frozenset({b"PASS", b"XPASS"})
_REST_OF_NAME = regex(rb"[0-9A-Za-z_.\x80-\xff-]*")
_IDENTIFIED_BY = b"identified by"
_SPACES, _QUOTES = b" \t", b"\"'`"
_LITERAL_PREFIXES = (
    b" \t\"'`@bBuUrRLfN$\\"  # all that a separator of a space and a quoted literal consists of
)

# --- patterns of names that have no value
# A name after a slash that has a value: an option of a Windows command, or `login: crm / password`.
_SLASH_OPTION = regex(rb"\s/(?:p:)?$|(?:^|[\s(,;])[A-Za-z ]{2,12}[:=][ \t]?[^\s/:]+[ \t]?/$")
_PROGRAM_PREFIX = regex(rb"[ \t]*[\"']?[A-Za-z][\w.-]+:")  # `redis:` in `redis:password: x`
_TEST_RESULT = regex(
    rb"(?m)^[ \t]*(?:(?:--- )?(?:X?PASS|X?FAIL|SKIP|UNSUPPORTED|UNTESTED|UNRESOLVED|ERROR|ok|not ok)\b|=== )"
)
_ACCOUNT_LINE = regex(
    rb"(?im)^[\s>*-]*(?:user|login|host|name|e?mail|url|port|db|server|account|id)\w*[ \t]*[:=]"
)

# --- patterns of separators
_SQL_ACCOUNT_COMMAND = regex(rb"(?i:\b(?:create|alter|grant)\b)")
_OTHER_KEYWORD = regex(rb"^[\"'],\s*(?!with:|value:)\w+:\s*[\"']?$")
_OTHER_ATTRIBUTE = regex(rb"^[\"']\s+(?!value|default|content|data)[\w:.-]+\s?=\s?[\"']$")
_RUBY_SYMBOL = regex(rb"(?:^|[\s(,\[]):$")  # the text before a name
_COMPLETE_WORD = regex(rb"(?i)(?:passw(?:or)?d|passwort|passphrase|identified by)$")
_SETTERS = (b"define", b"global", b"set", b"SET", b"setx", b"ENV", b"ARG", b"set -x")
# Methods of a credential that get its value as an argument: they compare it, fill it in or make it.
_VALUE_METHODS = frozenset(
    b"""
    equals equal eq is equalsignorecase type fill getorelse orelse unwrap_or fromstring from_string of
    from valueof literal parse new
    """.split()
)
# Endings of types that hold a value: `SecretString`, `PlainPassword`.
_TYPE_ENDINGS = tuple(b"value string str secret password credential credentials token bytes".split())
_LIST_WORD = regex(rb"[A-Za-z]+(?:[_.-][0-9A-Za-z]+)*")

# --- patterns of direct assignments
# An operator, maybe with a type before it; or the end of an XML tag; or, in SQL, a space.
_DIRECT_SEPARATOR = regex(
    rb"""\\{0,3}["'`]?\)?\]?[ \t]*(?:(?::[ \t]?|[ \t])[A-Za-z][\w.<>?*&\[\]]{1,30}[ \t]*(?==))?"""
    rb"""(?:=>|:=|={1,3}|!==?|:|\|\|=?|\?\?=?|->)"""
    rb"""[ \t]*(?:\(?\r?\n[ \t]+)?[bBuUrRLfN@$]{0,2}\\{0,3}["'`]?|>(?:<!\[CDATA\[)?\s*|[ \t]+["'`]"""
)
_CONDITIONAL_COLON = regex(rb"""["'`][ \t]*:""")  # `a ? "password" : "value"`
_CONFIGURATION_START = regex(rb"""[ \t]*(?:-[ \t]+)?["']?(?:(?:export|ENV|ARG|set|setx)[ \t]+)?["']?""")
_LINE_START = regex(rb"""[\s*{,"'`#/-]*""")  # the text before a name that begins its line
_LINE_END = regex(rb"""[ \t]*["'`]?[ \t]*(?:[,;})\]]|#|//|\\n|\r?\n|$|</|\*/|-->)""")

# Extensions of languages that quote their strings.
_CODE_EXTENSIONS = frozenset(
    b"""
    py pyi pyx js jsx mjs cjs ts tsx vue svelte java kt kts scala sc groovy gradle go rs c h cc cpp cxx
    hh hpp hxx ino m mm cs vb fs php phtml rb erb rake swift dart lua pl pm hs ex exs erl hrl clj cljs
    ml mli r jl sql tf hcl proto thrift graphql sol zig nim d pas asm s v vhd json ipynb css scss less
    ps1 psm1 coffee elm idl avsc cmake bzl bazel
    """.split()
)


class NameBefore(NamedTuple):
    """The name before a value, with its offset `start` in the text before the value and its noun.

    `separator` is the text between the name and the value, `line` the part of its line before the name.
    """

    start: int
    name: bytes
    noun: Noun
    separator: bytes
    line: bytes


# Result of a search in one line: the name, or the text that makes it a name, is in an earlier line.
NEEDS_MORE_TEXT = NameBefore(0, b"", Noun.KEY, b"", b"")


@lru_cache(maxsize=4_096)  # the same text is before many different values
def find_name_before(before: bytes, judge: str, is_bare: bool, is_line: bool) -> NameBefore | None:
    """Return the nearest name before a value; None if it names no credential or is not assigned the value.

    `before` is the text before the value: only its line if `is_line`, otherwise several lines. `judge`
    (`noun` or `key`) selects the words that a name must contain (LAST_WORD). `is_bare` says that the value is
    unquoted. Return NEEDS_MORE_TEXT if `before` contains no such word, or if earlier lines must decide. The
    result is cached.
    """
    start, end = find_nearest_name(before, LAST_WORD[judge])
    name = before[start:end]
    noun = find_noun(name)
    if noun is None:
        return None if end else NEEDS_MORE_TEXT
    separator, line = before[end:], before[before.rfind(b"\n", 0, start) + 1 : start]
    if is_bare and name in TEST_PASSED and is_line:  # the lines around it show whether it is a test result
        return NEEDS_MORE_TEXT
    if is_bare and _is_placeholder_name(line, separator):
        return None
    if not _leads_to_value(name, separator, before[:start], line):
        return NEEDS_MORE_TEXT if name.lower() == _IDENTIFIED_BY else None
    return NameBefore(start, name, noun, separator, line)


def find_nearest_name(before: bytes, last_word: re.Pattern[bytes]) -> tuple[int, int]:
    """Return start and end in `before` of the last name with a word of `last_word`; (0, 0) if there is none.

    `last_word` is a pattern such as LAST_PLURAL: its group 1 is the last such word in a text in lower case.
    """
    lower = before.lower()
    word = last_word.match(lower)
    if word is None:
        return 0, 0
    at = word.start(1)
    start = len(before[:at].rstrip(NAME_BYTES))
    if lower.startswith(_IDENTIFIED_BY, at):
        return start, at + len(_IDENTIFIED_BY)
    rest = _REST_OF_NAME.match(before, at)
    return start, len(before[: rest.end() if rest else at].rstrip(b".-"))


def _is_placeholder_name(line: bytes, separator: bytes) -> bool:
    """Whether a name is a parameter of a URL (`/token`, `:token`) or is in a template (after `{{`).

    `line` is the part of the line before the name, `separator` the text between name and value. An option
    such as `/password` of a Windows command is no parameter of a URL.
    """
    if line[-1:] == b":" and separator[:1] == b":" and _PROGRAM_PREFIX.fullmatch(line):
        return False
    is_in_template = line.rfind(b"{{") > line.rfind(b"}}")
    return (line[-1:] in {b":", b"/"} and not _SLASH_OPTION.search(line)) or is_in_template


def _leads_to_value(name: bytes, separator: bytes, before: bytes, line: bytes) -> bool:
    """Whether `separator`, the text between a name and a value, assigns the value to the name.

    `before` is all text before the name, `line` the part of its line. Most separators do; some do so only for
    certain names or lines: a space, the end of an XML tag, a comma, a parenthesis.
    """
    if _has_other_owner(name, separator, before):
        return False
    if separator[:1] in {b" ", b"\t"} and not separator.strip(_LITERAL_PREFIXES):
        is_option = line[-1:] == b"-"
        return is_option or _COMPLETE_WORD.search(name) is not None or line.rstrip().endswith(_SETTERS)
    if separator[:1] == b">":  # after `<` or a namespace, but not in a named group of a regular expression
        return line[-1:] in {b"<", b":"} and not line.endswith((b"?<", b"?P<"))
    if (
        separator.lstrip(b")]")[:1] == b","
    ):  # after a constant or a symbol; after a variable comes another argument
        return name.rpartition(b".")[2].isupper() or _RUBY_SYMBOL.search(line) is not None
    if separator[:1] == b"(":
        method = name.rpartition(b".")[2]
        return method.lower() in _VALUE_METHODS or ends_with_noun(method) or is_value_type(method)
    return True


def _has_other_owner(name: bytes, separator: bytes, before: bytes) -> bool:
    """Whether the text around a name shows that the value after it belongs to something else.

    `separator` is the text between the name and the value, `before` the text before the name.
    """
    # "identified by" in a sentence, not in SQL.
    if name.lower() == _IDENTIFIED_BY and not _SQL_ACCOUNT_COMMAND.search(before):
        return True
    # The name of a class: `Config::Password"`.
    if separator[:1] in {b">", b'"', b"'"} and before.endswith(b"::"):
        return True
    # The name is itself a value, followed by a comma: "type=password, next=...".
    is_list_value = before[-1:] in {b"=", b":"} and separator.lstrip(b"\"'` ")[:1] == b","
    if is_list_value and not _RUBY_SYMBOL.search(before[-2:]):
        return True
    # The value of the next keyword argument or the next attribute.
    if _OTHER_KEYWORD.search(separator) or _OTHER_ATTRIBUTE.search(separator):
        return True
    # A pipe in a shell: `$PASSWORD | ...`.
    if before[-1:] == b"$" and separator.strip(b"\"' ") == b"|":
        return True
    # The end of a sentence, a member of an object, a shell pattern.
    return separator[:1] == b"." or separator == b"->" or separator[:2] == b"* "


def is_list_item(separator: bytes, value: bytes, after: bytes) -> bool:
    """Whether a name and a value are two words of one list.

    That is so if `separator`, the text between them, begins with a comma (after a quote) and has no colon, if
    `after`, the byte after the closing quote, is a comma, and if the value consists of words. Between
    backticks, as in Markdown, the comma before it is enough.
    """
    if separator == b"`, `":
        return True
    return (
        b":" not in separator
        and separator.lstrip(b"\"'`")[:1] == b","
        and after == b","
        and _LIST_WORD.fullmatch(value) is not None
    )


def is_value_type(name: bytes) -> bool:
    """Whether `name` is that of a type for credentials, such as `SecretString`, by its ending."""
    return name[:1].isupper() and name.lower().endswith(_TYPE_ENDINGS)


def is_test_result(data: bytes, start: int, name: bytes) -> bool:
    """Whether the name at offset `start` of `data` is a test result, `PASS` or `XPASS`, and no password.

    That is so after `---`, or if another line of `data` begins with a test result and no line sets a user, a
    host or the like.
    """
    if name not in TEST_PASSED:
        return False
    line_start = data.rfind(b"\n", 0, start) + 1
    if data[line_start:start].strip() == b"---":
        return True
    has_other_results = any(line.start() != line_start for line in _TEST_RESULT.finditer(data))
    return has_other_results and _ACCOUNT_LINE.search(data) is None


def is_direct_assignment(name: bytes, separator: bytes, line: bytes, *, is_bare: bool) -> bool:
    """Whether only an operator is between a name and its value, outside of arguments, lists and sentences.

    Then even a plain word may be the password. False if the name does not end with a noun for a credential.
    `separator` is the text between name and value, `line` the part of the line before the name. An unquoted
    value (`is_bare`) must follow `=` without spaces, or its name must begin the line and not end with `pass`.
    """
    in_sql = name.lower() == _IDENTIFIED_BY
    if not (in_sql or ends_with_noun(name)) or not _DIRECT_SEPARATOR.fullmatch(separator):
        return False
    if b"?" in line and _CONDITIONAL_COLON.match(separator):
        return False
    if separator[:1] in _SPACES and separator.strip()[:1] in _QUOTES:
        return in_sql or name.isupper()
    if not is_bare or separator == b"=":
        return True
    return _LINE_START.fullmatch(line) is not None and not name.lower().endswith(b"pass")


def is_configuration_line(name: bytes, separator: bytes, line: bytes, *, is_bare: bool) -> bool:
    """Whether a line has the form of a configuration: `NAME=value`, `export NAME=value` or `NAME: value`.

    `separator` is the text between name and value, `line` the part of the line before the name. In a form
    with a colon, the value is unquoted (`is_bare`) or the name in capital letters; a name with an equals sign
    is in capital letters or has dots.
    """
    if _CONFIGURATION_START.fullmatch(line) is None:
        return False
    if separator.rstrip(_QUOTES) == b"=":
        return name.isupper() or (is_bare and b"." in name)
    return separator.rstrip(_QUOTES).rstrip(_SPACES) == b":" and (is_bare or name.isupper())


def has_text_after(data: bytes, end: int) -> bool:
    """Whether an unquoted value that ends at offset `end` is followed by more text in its line.

    Closing punctuation, a comment or a closing tag after the value is not text.
    """
    return _LINE_END.match(data, end) is None


def is_code_file(path: bytes) -> bool:
    """Whether the file at `path` is in a language that quotes its strings, by its extension.

    An unquoted value in such a file is an expression.
    """
    _, dot, extension = path.rpartition(b"/")[2].rpartition(b".")
    return dot != b"" and extension.lower() in _CODE_EXTENSIONS
