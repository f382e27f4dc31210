"""Decide whether a value is a credential, from the value and the name to which it is assigned.

`judge_assignment` reads the line of the value, or some text around it where the line is not enough:

1. A call, and whatever `is_dismissed` recognises at once, is no credential.
2. `context.find_name_before` finds the name of the value and the separator between the two.
3. The value is cut out: up to its closing quote (`_judge_quoted`), or up to the end of the unquoted text
   (`_judge_unquoted`). `candidate.judge_value` scores it, with reasons from the text around it.

Parameters of several functions:

- `data` is the text that is scanned; `start`, `end` are offsets of the value in it.
- `judge` is the setting `judge` of the rule, `noun` or `key`: it selects the words that a name must
  contain (`context.LAST_WORD`).
- `is_bare`: the value is unquoted. A value after `>`, `;` or `[` counts as quoted.
- `is_line`: the text that is passed is a part of one line, not of several lines.
- `dismiss`: call `is_dismissed` before anything else.
- `include_low`: also return values of low confidence.
- `name` is the name before the value with its separator and its line (`context.NameBefore`).
- `context` has reasons from the text around the value, such as DIRECT_ASSIGNMENT (`score`).
"""

import re
from functools import lru_cache

from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex
from outcrop.scanner import trace
from outcrop.scanner.generic.candidate import VALUE_END, Candidate, judge_value, make_candidate, reject
from outcrop.scanner.generic.context import (
    NEEDS_MORE_TEXT,
    NameBefore,
    find_name_before,
    has_text_after,
    is_configuration_line,
    is_direct_assignment,
    is_list_item,
    is_test_result,
    is_value_type,
)
from outcrop.scanner.generic.names import Noun, ends_with_attribute, is_secret_name
from outcrop.scanner.generic.placeholders import FILL_IN, PLACEHOLDER_WORD
from outcrop.scanner.generic.score import (
    CALL_ARGUMENT,
    DIRECT_ASSIGNMENT,
    EXPRESSION_PART,
    IN_SENTENCE,
    looks_generated,
    looks_generated_with_symbols,
    weigh,
)
from outcrop.scanner.generic.typed import ASSIGNED, CONFIGURATION_LINE, SECRET_NAME
from outcrop.scanner.generic.values import is_identifier, is_pod_checksum
from outcrop.scanner.patterns.re2_match import compile_cached, matches_at, matches_fully

MAX_VALUE_BYTES = 400
MAX_LONG_VALUE_BYTES = 8_192  # of a value that has only the characters of tokens
BYTES_BEFORE_VALUE = 128  # read before a value: its name, and the beginning of its line
_BYTES_FROM_VALUE = MAX_VALUE_BYTES + 8  # read from a value on: the value, and what follows it
_QUOTES, _SPACES = b"\"'`", b" \t"
_BACKSLASH, _BACKTICK, _AT = b"\\`@"
_LOW = Confidence.LOW  # a global is quicker than a member of an enum

_LONG_VALUE = regex(rb"[0-9A-Za-z+/_.~-]{399,8190}={0,2}(?![0-9A-Za-z+/=_.~-])")
_TOKEN_BYTES = frozenset(
    bytes([byte]) for byte in b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/=_.~-"
)
_QUOTE_BYTES = frozenset({b'"', b"'", b"`"})

# --- patterns of values, each up to one byte more than MAX_VALUE_BYTES
_UNSPACED_VALUE = regex(rb"[^\x00-\x20\x7f\"'`<>]{1,401}")
_QUOTED_VALUE = {quote: regex(rb"[^\x00-\x1f\x7f%c]{1,401}" % quote) for quote in b"\"'`"}
_BARE_VALUE = regex(rb"[^\x00-\x20\x7f\"'`<>(){}\[\]]{1,401}")
_BARE_VALUE_WITH_BRACKETS = regex(rb"[!#-&(-_a-~]{1,401}(?<![,;])")
_CALL_OR_INDEX = regex(rb"[A-Za-z_$][\w$.]*[(\[]")
_CALL_OR_TAG_OR_PERL_QUOTE = regex(_CALL_OR_INDEX.pattern + rb"|.*<[A-Za-z/!]|q[qw]?\{")
_BRACKETS = b"<>(){}[]"
_OPENING_BRACKETS = frozenset({b"(", b"[", b"{"})
_BRACKET_PAIRS = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b"<", b">"))
_CONTINUATION = frozenset({b"+", b"%", b","})  # first characters of a next line that continues an expression
_CONTINUATION_OR_SPACE = _CONTINUATION | {b" ", b"\t", b"\r", b"\n", b"\v", b"\f"}
# The authentication scheme of a header before the value: `"Bearer `.
AUTH_SCHEME = regex(rb"(?i:bearer|token|apikey)[ \t]")
_AUTH_SCHEME_BEFORE = regex(rb"(?<=[\"'`])" + AUTH_SCHEME.pattern + rb"$")
_AUTH_SCHEME_LAST_LETTERS = b"RrNnYy"
_USER_AND_COLON = regex(rb"[\w.@+-]{1,40}:")
_NAME_SEPARATORS = b"_.-:/ "
# The separator before an object that is written in a string: `'{"`.
_OBJECT_IN_STRING = regex(rb"[\"'`]\{[ \t]?\\{0,3}[\"']$")
_OBJECT_MEMBER = regex(
    rb"([\w.-]*)\\{0,3}[\"']?[ \t]?:[ \t]?\\{0,3}[\"']([^\x00-\x20\x7f\"'\\]{16,200})\\{0,3}[\"']"
)

# --- patterns of the text around a value
_CALL_BEFORE_QUOTE = regex(rb"([A-Za-z_][\w.:<>-]*)[(\[{]\s*[bBuUrRLfN@$]{0,2}[\\\"'`]*$")
# Functions that return their argument in another type or encoding, and methods and keywords before a value.
_CONVERTERS = frozenset(
    b"""
    type fill sendkeys send_keys tobe toequal eq with val bytes byte string str from new to_string some
    char text qstringliteral qstring qlatin1string securestring convertto-securestring decodestring
    unhexlify b64decode frombase64string utf8 secret secretstr secretvalue password base64 nsstring
    getbytes ok of just option n l tostring return is was or and bytearray cstr cstring freeze token
    value literal fromstring getorelse unwrap_or orelse getenv get env setproperty setpassword const let
    var val auto fromhex fromhexstring hex_decode hexdecode decodehex decode_hex hex2bin hextobytes
    hexstringtobytes parsehexbinary b16decode decode64 strict_decode64 urlsafe_decode64
    urlsafe_b64decode standard_b64decode base64_decode decodebase64 base64decode frombase64 atob
    mustdecode a2b_hex a2b_base64 decode
    """.split()
)
_IN_SENTENCE = regex(rb"[ \t](?:is|was)[ \t][\"'`]")  # the password is "…"
_COMMENT = regex(rb"#|//|/\*|^\s*(?:\*|--|;|<!--|%|REM\b|rem\b)")

# --- patterns of values to dismiss
_MEMBER = r"(?:self|this|(?:[A-Za-z_]+\.){0,3}env)\.[A-Za-z_$][\w$.]*"
_WORD = rf"{PLACEHOLDER_WORD}|(?i:password|passwort|passwd|passphrase|secret|token)[0-9]{{1,4}}"
_DISMISSED_BARE = rf"\$[({{]|(?:{_MEMBER}|{_WORD})(?:[,;]|[)\]}}]{{1,2}}[,;:]?)?(?:\s|$)"
_DISMISSED_QUOTED = rf"[\"'`](?:(?s:.*)(?:{FILL_IN})(?s:.*)|{_WORD})[\"'`]"
_ENVIRONMENT_LOOKUP = regex(rb"(?i:env)[A-Za-z_.:]{0,12}[(\[][\"'`]$")  # the value is a variable's name

_NEEDS_MORE_TEXT = Candidate(Confidence.LOW, 0, 0)  # see context.NEEDS_MORE_TEXT


def judge_assignment(  # noqa: PLR0917 - called for every match: a call without names is quicker
    data: bytes, start: int, judge: str, is_bare: bool, dismiss: bool, include_low: bool
) -> Candidate | None:
    """Return the value that begins at `start` as a candidate; None if it is no credential.

    `judge` (`noun` or `key`) selects the words that the name before the value must contain. `is_bare` says
    that the value is unquoted. With `dismiss`, return None for values that `is_dismissed` recognises, before
    other checks. Without `include_low`, return None for a value of low confidence. Start and end of the
    candidate are offsets in `data`.
    """
    text_start = start - BYTES_BEFORE_VALUE if start > BYTES_BEFORE_VALUE else 0
    line_end = data.find(b"\n", start, start + _BYTES_FROM_VALUE)
    if line_end < 0:
        stop = start + _BYTES_FROM_VALUE
    elif (
        data[line_end + 1 : line_end + 2] in _CONTINUATION_OR_SPACE
        and data[line_end + 1 : line_end + 3].lstrip()[:1] in _CONTINUATION
    ):
        stop = line_end + 3
    else:
        stop = line_end + 1
    offset = (data.rfind(b"\n", text_start, start) + 1) or text_start
    judge_in_text = _judge_in_text if trace.active is None else _judge_in_text.__wrapped__
    found = judge_in_text(data[offset:stop], start - offset, judge, is_bare, True, dismiss)
    if found is _NEEDS_MORE_TEXT:
        offset, stop = text_start, start + _BYTES_FROM_VALUE if is_bare else stop
        found = judge_in_text(data[offset:stop], start - offset, judge, is_bare, False, dismiss)
        if found is _NEEDS_MORE_TEXT:
            return reject("no name of a credential is before it")
    elif found and is_pod_checksum(data, found.start + offset, found.end + offset):
        return reject("it is the checksum of a package")
    if found is None:
        return _judge_long_value(data, start, judge, is_bare=is_bare)
    if found.confidence is _LOW and not include_low:
        return None
    return found._replace(start=found.start + offset, end=found.end + offset)


def _judge_long_value(data: bytes, start: int, judge: str, *, is_bare: bool) -> Candidate | None:
    """Return a value of over MAX_VALUE_BYTES as a candidate; None if it is shorter or no credential.

    It has only the characters of tokens, up to MAX_LONG_VALUE_BYTES of them, and its name is in the same line
    within BYTES_BEFORE_VALUE. A quoted value must end with its quote.
    """
    if data[start + MAX_VALUE_BYTES : start + MAX_VALUE_BYTES + 1] not in _TOKEN_BYTES:
        return None
    value = _LONG_VALUE.match(data, start)
    if value is None:
        return None
    end = value.end()
    line_start = data.rfind(b"\n", max(0, start - BYTES_BEFORE_VALUE), start) + 1
    before = data[max(line_start, start - BYTES_BEFORE_VALUE) : start]
    if not is_bare and before[-1:] in _QUOTE_BYTES and data[end : end + 1] != before[-1:]:
        return None
    name = find_name_before(before, judge, is_bare, True)
    if name is None or name is NEEDS_MORE_TEXT or name.noun is Noun.KEY:
        return None
    return make_candidate(data, start, end, weigh(value[0], name.noun, "bare" if is_bare else "quoted"))


def is_dismissed_in_line(data: bytes, start: int, judge: str, is_bare: bool) -> bool:
    """Whether the value at `start` is certainly no credential, by its own text and its line up to it.

    True for an unquoted call or index, for what `is_dismissed` recognises, and if the nearest name before the
    value in its line names no credential or does not lead to the value. False if the line has no name, as an
    earlier line may have it, and for a value after `"Bearer `. `judge` (`noun` or `key`) selects the words
    that a name contains; `is_bare` says that the value is unquoted. `judge_assignment` checks the same and
    more, but takes longer.
    """
    if is_bare:
        if (
            data[start - 1] in _SPACES
            and data[start - 2] in _AUTH_SCHEME_LAST_LETTERS
            and _AUTH_SCHEME_BEFORE.search(data, max(0, start - 8), start)
        ):
            return False
        if _CALL_OR_INDEX.match(data, start, start + _BYTES_FROM_VALUE):
            return True
    if is_dismissed(data, start, is_bare):
        return True
    text_start = start - BYTES_BEFORE_VALUE if start > BYTES_BEFORE_VALUE else 0
    line_start = (data.rfind(b"\n", text_start, start) + 1) or text_start
    return find_name_before(data[line_start:start], judge, is_bare, True) is None


def is_dismissed(data: bytes, start: int, is_bare: bool) -> bool:
    """Whether the value that begins at `start` is a placeholder, or a reference to a variable or a member.

    `is_bare` says that the value is unquoted. False for a quoted value without a closing quote within
    MAX_VALUE_BYTES, and for an object that is written in a string. This quick check is for texts that files
    are full of. It only dismisses values that would get no or low confidence, and names of variables and
    members.
    """
    if is_bare:
        stop, size = start + MAX_VALUE_BYTES, len(data)
        stop = stop if stop < size else size  # noqa: FURB136 - quicker than min()
        return matches_at(compile_cached(_DISMISSED_BARE), data, start, stop)
    quote = data[start - 1]
    # The members of an object that is written in a string are judged one by one.
    if quote not in _QUOTES or data.find(b"{", start - 5 if start > 5 else 0, start) >= 0:
        return False
    stop = data.find(quote, start, start + MAX_VALUE_BYTES)
    is_variable = (
        data[start - 2] in b"([" and _ENVIRONMENT_LOOKUP.search(data, max(0, start - 24), start) is not None
    )
    return stop > 0 and (
        is_variable or matches_fully(compile_cached(_DISMISSED_QUOTED), data, start - 1, stop + 1)
    )


@lru_cache(maxsize=4_096)  # versions of one file repeat the same lines thousands of times
def _judge_in_text(  # noqa: PLR0917 - a cached function is quicker without names
    data: bytes, start: int, judge: str, is_bare: bool, is_line: bool, dismiss: bool
) -> Candidate | None:
    """Return the value at offset `start` of a short text as a candidate; None if it is no credential.

    The text `data` is a part of one line if `is_line`, otherwise of several. Return _NEEDS_MORE_TEXT if it is
    not enough to decide. Offsets of the candidate are offsets in the short text. `judge`, `is_bare` and
    `dismiss` are those of `judge_assignment`; a value after `"Bearer ` counts as quoted. Results are cached.
    """
    before = data[:start]
    if before[-1] in _SPACES and (scheme := _AUTH_SCHEME_BEFORE.search(before)):
        before, is_bare = before[: scheme.start()], False
    if (is_bare and _CALL_OR_INDEX.match(data, start)) or (dismiss and is_dismissed(data, start, is_bare)):
        return reject("it is a call, an index, a variable or a placeholder")
    return _judge_by_name(data, start, before, judge, is_bare=is_bare, is_line=is_line)


def _judge_by_name(  # noqa: PLR0911 - one return for each kind of value
    data: bytes, start: int, before: bytes, judge: str, *, is_bare: bool, is_line: bool
) -> Candidate | None:
    """Return the value at `start` as a candidate, by the nearest name before it; None if it is no credential.

    `before` is the text before the value, without an authentication scheme such as `Bearer`. `judge` (`noun`
    or `key`) selects the words that the name must contain. `is_bare` says that the value is unquoted,
    `is_line` that `before` is a part of one line. Return _NEEDS_MORE_TEXT if `before` is not enough to find
    the name.
    """
    name = find_name_before(before, judge, is_bare, is_line)
    if name is None:
        return reject("the name before it announces no credential, or does not lead to it")
    if name is NEEDS_MORE_TEXT:
        return _NEEDS_MORE_TEXT
    if is_bare and is_test_result(data, name.start, name.name):
        return reject("it is behind the result of a test")
    is_bare = (
        is_bare and b"\n" not in name.separator
    )  # a value in a line of its own is complete, as if quoted
    if b"{" in name.separator and _OBJECT_IN_STRING.search(name.separator):
        return _judge_object_member(data, start)
    value = _match_value(data, start, before[-1], is_bare=is_bare)
    if value is None:
        return reject("it is empty or too long")
    if _is_no_credential(name, value[0], data[value.end() + 1 : value.end() + 2]):
        return reject("it repeats its name, identifies something, or is a word of a list")
    end = value.end()
    if name.name[-7:].lower() == b"userpwd" and (user := _USER_AND_COLON.match(data, start, end)):
        start = user.end()
    context = _assignment_context(name, is_bare=is_bare)
    if is_bare:
        return _judge_unquoted(data, start, end, name, context)
    if before[-1] not in _QUOTES:
        return judge_value(data, start, end, name.noun, "element", context)
    return _judge_quoted(data, start, end, before[-1], name, context)


def _match_value(data: bytes, start: int, byte_before: int, *, is_bare: bool) -> re.Match[bytes] | None:
    """Return the match of the value at `start`; None if there is none or it has over MAX_VALUE_BYTES.

    `byte_before` is the byte before the value, or before its authentication scheme (`"Bearer `) if it has
    one. With `is_bare`, the value ends before a space, a quote or a bracket. Otherwise it ends before the
    same quote as `byte_before`. If that is no quote, or after a scheme, it ends before a space, any quote,
    `<` or `>`.
    """
    if is_bare:
        pattern = _BARE_VALUE
    elif data[start - 1] in _SPACES:  # after an authentication scheme
        pattern = _UNSPACED_VALUE
    else:
        pattern = _QUOTED_VALUE.get(byte_before, _UNSPACED_VALUE)
    value = pattern.match(data, start)
    return value if value is not None and value.end() - start <= MAX_VALUE_BYTES else None


def _is_no_credential(name: NameBefore, value: bytes, after: bytes) -> bool:
    """Whether a value repeats its name, is only an identifier, or is a word of a list that is not random.

    `after` is the byte after the closing quote, or b"" at the end of the text.
    """
    return (
        _repeats_name(name.name, value)
        or is_identifier(name.name, value)
        or (is_list_item(name.separator, value, after) and not looks_generated(value))
    )


def _repeats_name(name: bytes, value: bytes) -> bool:
    """Whether a value is its name, or the end of its name, in another spelling.

    An example is `vscodeAskpassMain: "VSCODE_ASKPASS_MAIN"`.
    """
    return (
        name.lower()
        .translate(None, _NAME_SEPARATORS)
        .endswith(value.rstrip(b",;)").lower().translate(None, _NAME_SEPARATORS))
    )


def _assignment_context(name: NameBefore, *, is_bare: bool) -> tuple[str, ...]:
    """Return the reasons of a value with only an operator between it and its name; otherwise ().

    They are ASSIGNED, for a password also DIRECT_ASSIGNMENT; SECRET_NAME and CONFIGURATION_LINE where they
    apply. `is_bare` says that the value is unquoted: then the rules for the operator are stricter
    (`is_direct_assignment`).
    """
    if not is_direct_assignment(name.name, name.separator, name.line, is_bare=is_bare):
        return (ASSIGNED,) if not is_bare and _IN_SENTENCE.fullmatch(name.separator) else ()
    context: tuple[str, ...] = (DIRECT_ASSIGNMENT, ASSIGNED) if name.noun is Noun.PASSWORD else (ASSIGNED,)
    if is_secret_name(name.name):
        context = (*context, SECRET_NAME)
    if is_configuration_line(name.name, name.separator, name.line, is_bare=is_bare):
        context = (*context, CONFIGURATION_LINE)
    return context


def _judge_quoted(  # noqa: PLR0917 - the value, its quote, its name
    data: bytes, start: int, end: int, quote: int, name: NameBefore, context: tuple[str, ...]
) -> Candidate | None:
    """Return the quoted value as a candidate; None without its closing quote, or if it is no credential.

    `start` and `end` are the span between the quotes, `quote` is the byte that closes it. A text with spaces
    between backticks is a command: None. `context` has reasons to add to those from the call or expression
    around the value.
    """
    if end >= len(data) or data[end] != quote or (quote == _BACKTICK and b" " in data[start:end]):
        return reject("its closing quote is missing, or it is a command between backticks")
    while data[end - 1] == _BACKSLASH:  # the closing quote is escaped
        end -= 1
    reasons = (*_expression_context(name.separator, data[end + 1 : end + 4]), *context)
    return judge_value(data, start, end, name.noun, "quoted", reasons)


def _expression_context(separator: bytes, after: bytes) -> tuple[str, ...]:
    """Return the reasons why a quoted value is only a part of what its name gets; () if there are none.

    CALL_ARGUMENT: `separator`, the text between name and value, ends with a call that does not return its
    argument.
    EXPRESSION_PART: `after`, the text after the closing quote, continues an expression.
    """
    reasons = []
    call = (
        _CALL_BEFORE_QUOTE.search(separator)
        if b"(" in separator or b"[" in separator or b"{" in separator
        else None
    )
    if call and not _returns_its_argument(call[1].rpartition(b".")[2].rpartition(b":")[2]):
        reasons.append(CALL_ARGUMENT)
    after = after.lstrip()
    if after[:1] in {b"+", b"%"} or after[:3] == b".fo" or (separator[:1] == b"(" and after[:1] == b","):
        reasons.append(EXPRESSION_PART)
    return tuple(reasons)


def _returns_its_argument(function: bytes) -> bool:
    """Whether a function or type of this name is known to return its argument, maybe in another encoding.

    Names of types for credentials, such as `SecretString`, count too.
    """
    return function.lower() in _CONVERTERS or is_value_type(function)


def _judge_unquoted(
    data: bytes, start: int, end: int, name: NameBefore, context: tuple[str, ...]
) -> Candidate | None:
    """Return the unquoted value from `start` to `end` as a candidate; None if it is no credential.

    A call, an index and the author in `token - @author` are no credentials. `context` has reasons from around
    the value. In a sentence (`token is x`) it is replaced by IN_SENTENCE; if a space precedes the value and
    more text follows it, `context` is ignored. The candidate is `bare` if the value may be an expression in
    code.
    """
    separator = name.separator
    if data[start] == _AT and separator.strip() == b"-":
        return reject("it is the name of an author")
    in_sentence = separator.strip() in {b"is", b"was"}
    if separator[-1:] in _SPACES and has_text_after(data, end):
        context = ()
        in_sentence = in_sentence or separator.rstrip() == b":"
    if in_sentence:
        context = (IN_SENTENCE,)
    if name.noun is not Noun.KEY and (bracket_end := _find_end_after_bracket(data, start, end, name.line)):
        return make_candidate(
            data, start, bracket_end, weigh(data[start:bracket_end], name.noun, "bare", context)
        )
    if data[end : end + 1] in _OPENING_BRACKETS and not VALUE_END.search(data, start, end):
        return reject("it is a call or an index")
    found = judge_value(data, start, end, name.noun, "bare", context)
    if found is None:
        return None
    return found._replace(bare=_is_code(name.line) and not looks_generated(data[start : found.end]))


def _find_end_after_bracket(data: bytes, start: int, end: int, line: bytes) -> int | None:
    """Return the end of an unquoted value that goes on after the bracket at `end`; None if it does not.

    The value goes on only if the longer value looks like a generated password. A bracket that closes one in
    `line`, the line up to the name, is not part of the value.
    """
    if end >= len(data) or data[end] not in _BRACKETS or VALUE_END.search(data, start, end):
        return None
    value = _BARE_VALUE_WITH_BRACKETS.match(data, start)
    if value is None or _CALL_OR_TAG_OR_PERL_QUOTE.match(value[0]):
        return None
    if any(opening in line and closing in value[0] for opening, closing in _BRACKET_PAIRS):
        return None
    return value.end() if looks_generated_with_symbols(value[0].decode()) else None


def _is_code(line: bytes) -> bool:
    """Whether the text after `line`, the beginning of a line, is outside of strings and comments."""
    if line.count(b'"') % 2 or line.count(b"'") % 2 or line.count(b"`") % 2:
        return False
    return _COMMENT.search(line) is None


def _judge_object_member(data: bytes, start: int) -> Candidate | None:
    """Return the first credential in an object such as JSON whose text is in a string; None if there is none.

    `start` is the offset after the opening brace and quote: that of the name of the first member. Members
    with the name of an attribute (`token_url`) are skipped. Only values of 16 to 200 characters without
    spaces count.
    """
    for member in _OBJECT_MEMBER.finditer(data, start, start + MAX_VALUE_BYTES):
        if not ends_with_attribute(member[1]) and (
            found := judge_value(data, *member.span(2), Noun.SECRET, "quoted")
        ):
            return found
    return None
