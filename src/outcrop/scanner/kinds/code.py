"""Names of settings, fields and constants in source code, which have a word for a credential in them."""

import base64
import json
import re
from itertools import pairwise

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import find_noun, word_set
from outcrop.scanner.generic.randomness import random_bits
from outcrop.scanner.generic.score import looks_generated_with_symbols
from outcrop.scanner.kinds.kind import Kind, Sample

CONSTANT_NAME = Kind("constant-name", "the name under which a program stores or finds something")
ENTRY_KEY = Kind("entry-key", "the key of an entry in a map: a name that says only `key`")
PUBLIC_KEY = Kind("public-key", "a public key or an id, by its name")
ADDRESS = Kind("address", "an address or a path")
NAME_LIST = Kind("name-list", "a list of names")
OTHER_ARGUMENT = Kind(
    "other-argument", "an argument after a text, a host or an action that contains a word for a credential"
)
CODE = Kind("code", "an expression of a program: a member, a call or a comparison")
NUMBER = Kind("number", "a number of tokens")
SESSION_ID = Kind("session-id", "the number of a session, by its name and its form")
ENCODED_OBJECT = Kind("encoded-object", "an object in base64 whose fields name no credential")

# Names such as REQUEST_KEY, PREF_PASSCODE and EXTRA_TOKEN are those of keys in a map.
_FIRST_WORDS = word_set("""
    pref prefs preference preferences extra request bundle arg argument param intent storage cache column
    field header
""")
_MEMBER = regex(r"[A-Za-z_$][\w$]*(?:\??\.[A-Za-z_$][\w$]*)+(?:[(:?].*)?")
_OPERATORS = regex(r".*(?:===?|!==?|&&|\|\||=>|\?\?|\+\+).*", re.DOTALL)
_MAX_RANDOM_BITS = 10.0
_MAX_CODE = 200  # characters
_HOST_NAME = regex(r"(?:[\w-]+\.)+(?:com|org|net|io|dev|app|co|ai)")
_ADDRESS = regex(
    r"(?i)(?:https?|wss?|ftp|file|s3|gs):(?:\\?/){2}[^\s@]{3,}|(?:refs|\.{1,2})/[\w./*:-]+"
    r"|(?:[a-z]:)?\\{1,2}[a-z]{4,}(?:[\\ ][\w. \\-]*)?|[a-z][\w-]*:(?:\.{0,2}/|\.)[\w./-]+"
    r"|[\w.+-]+(?:/[\w.+-]+)+\.(?:txt|json|ya?ml|xml|html?|pem|crt|jks|p12|key|properties)"
    r"|(?:[\w.-]+/)+(?:\*\*/)?\*[\w.*]*|@~?/[\w./-]+"
)
_STRING_WITH_NAME = regex(rb"[\"'][A-Za-z][^\"'\n=:]{0,60} [^\"'\n=:]{1,60}[\"'],\s{0,40}[\"']$")
_LIST_OF_NAMES = regex(r"[\w.-]+(?:[,;|][ ]?[\w.-]+){3,}")
_LIST_OF_CONSTANTS = regex(r"[A-Z][A-Z0-9_]+(?:[`,;|/ ]{1,3}[A-Z][A-Z0-9_]+)+")
_SETTING = regex(r"[A-Za-z ]{2,20}=[\w.:-]{0,40};")  # a part of a connection string
_STATEMENT_END = regex(rb"[ \t]*;[ \t]*\r?$")
_MARKUP = regex(r"&(?:#[0-9]{1,4}|[a-z]{2,6});?|.*&quot;&quot;.*|#[A-Za-z][\w-]*")
_CLASS_LIST = regex(rb"(?i)class(?:es|name)?=[\"'][^\"'<>]{0,200}$")
# Types of columns, of key stores.
_TYPES = frozenset(
    {"BLOB", "VARCHAR", "NVARCHAR", "STRING", "INTEGER", "BIGINT", "BINARY", "VARBINARY", "PKCS12", "PKCS11"}
)
# The kinds of tokens in a syntax, rules of a form, a map that a program printed, what a string is split into.
_SCOPE = regex(
    r"(?:keyword|comment|string|constant|identifier|variable|type|operator|delimiter|number|tag|attribute"
    r"|annotation|regexp|entity|support|invalid|markup|meta|storage)\.[\w$.-]+"
)
_FORM_RULE = regex(r"(?:required|nullable|sometimes|confirmed|filled)\|.*")
_PRINTED_MAP = regex(r"map\[[^\[\]]*:.*")
_MARKUP_NAMES = regex(r"[!?]?[a-z]+(?:,[!?]?[a-z]+){5,},?")
_SPLIT = regex(rb"[\"']\.(?:split|join)\(")
# A resource of Android, and a constant without quotes.
_RESOURCE = regex(r"[?@](?:[\w.]+:)?[a-z]+/[\w.]+")
_COMMENT_END = regex(r"[\w.]+\*/")
_CONSTANT = regex(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_CIPHER_LIST = regex(rb"(?:^|[\s:\"'])!\w+(?::[!+-]?\w+)*:[!+-]?$")
_WORDS = regex(r"[a-z]+(?:[-_.:][a-z]+)+")
_MIN_SHARE_OF_NAME = 0.6  # of the words of a value that are in its name too
_UUID = regex(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MAX_ENCODED = 400  # characters of base64 that are decoded
_STORE_WORDS = word_set("storage cache cookie param query header column field attr map local pref prefs")
_ACTION_ON_CREDENTIALS = regex(
    rb"(?i)\b(?:write|read|get|load|save|store|delete|remove|find|list|has|check|update|fetch)_?[a-z]*credentials?"
    rb"\([^()]{1,120}$"
)
_LAST_STRING = regex(rb"[\"']([^\"'\s]{4,80})[\"'],\s{0,40}[\"']$")
_ENTRY = regex(
    rb"(?:^[ \t\\\"'`]*|[{,(<\[\"'`;.]\s*|\s(?:val|var|const|let|static)\s+|<\w+\s+)_?keys?\\?[\"'`]?\s{0,3}"
    rb"(?::|=>|=)\s{0,3}\\?[\"'`]?$"
)
_OWN_METHOD = regex(rb"\b(?:self|this)\.(?!_?set)\w+\([\"']$")  # it looks a credential up by its argument
# In a list of passwords that are too simple, and in `it will not pass - use`, the name is none.
_LIST_OF_VALUES = regex(rb"[,/*#]\s*[\"'](?i:pass)[\w@$!]*[0-9!][\"'],\s{0,3}[\"']$")
_ITEMS_BEFORE = regex(rb"[\"'],\s{0,3}[\"'][\w.-]*(?i:pass|pwd|token)[\w.-]*[\"'],\s{0,3}[\"']$")
_ITEM_AFTER = regex(rb"[\"']\s{0,3}[,\]]")
_VERB = regex(rb"(?i)\b(?:not|to|will|can|must|should|may) pass\b[^=:\n]{0,30}$")
_WORDS_OF_NAME = regex(r"[A-Za-z]+(?:_[A-Za-z]+)*")
_CODE_IN_ATTRIBUTE = regex(
    rb"<[\w:.-]+\s[^<>]{0,80}\b(?:type|code|lang|class|for)=[\"'][\w-]+[\"'][^<>]{0,80}>$"
)
_BYTES_NEAR = 300
_HEX_KEY = regex(r"[0-9a-f]{32}")
_PUBLIC_LABEL = regex(rb"(?i)public[ _-]?key\W{0,8}$")
_LABEL = regex(rb"[A-Z][a-z]+ Key\W*$")  # `Repository Key: …`, as commands print it
_ENTRY_KEYS = frozenset({"key", "keys", "_key"})


def is_constant_name(sample: Sample) -> bool:
    """Whether the name is that of a key in a map or a store: `REQUEST_KEY`, `PREF_PASSCODE`.

    Then the value may be words that say the same as the name.
    """
    words = sample.name_words
    if not sample.is_generic or len(words) < 2 or not sample.name.isupper():
        return False
    if words[0] in _FIRST_WORDS:
        return random_bits(sample.value) < _MAX_RANDOM_BITS or words[-1] == "key"
    if _WORDS.fullmatch(sample.value) is None:
        return False
    value_words = re.split(r"[-_.:]", sample.value)
    in_name = sum(word in words for word in value_words)
    return (words[-1] == "key" and words[-2] in _STORE_WORDS) or in_name >= max(
        2, _MIN_SHARE_OF_NAME * len(value_words)
    )


def is_code(sample: Sample) -> bool:
    """Whether the value is a member of an object or has an operator of a programming language."""
    value = sample.value
    if not sample.is_generic or len(value) >= _MAX_CODE or looks_generated_with_symbols(value):
        return False
    return (
        value in _TYPES
        or any(
            form.fullmatch(value) for form in (_SETTING, _FORM_RULE, _PRINTED_MAP, _RESOURCE, _COMMENT_END)
        )
        or _is_expression(value)
        or _CLASS_LIST.search(sample.before) is not None
        or (sample.name_words[-1:] == ["token"] and _SCOPE.fullmatch(value) is not None)
        or _SPLIT.match(sample.after) is not None
        or _CIPHER_LIST.search(sample.before) is not None
        or _is_variable(sample)
    )


def _is_expression(value: str) -> bool:
    """Whether the value has operators, is a member of an object or is markup, and does not look random."""
    is_member = _MEMBER.fullmatch(value) is not None and not value[-1].isdigit()
    return (is_member or any(form.fullmatch(value) for form in (_OPERATORS, _MARKUP))) and random_bits(
        value
    ) < _MAX_RANDOM_BITS


def _is_variable(sample: Sample) -> bool:
    """Whether a name gets the value of a constant, or a member of an object that of a variable.

    Examples are `'userpwd' => CURLOPT_USERPWD` and `user.password = hash;`.
    """
    is_statement = _STATEMENT_END.match(sample.after) is not None
    if _CONSTANT.fullmatch(sample.value):
        return sample.before.endswith(b"=> ") or (is_statement and sample.before.endswith(b" = "))
    return (
        "." in sample.name
        and sample.value.isalpha()
        and sample.value.islower()
        and sample.before.endswith((b" = ", b" := "))
        and is_statement
    )


def is_number(sample: Sample) -> bool:
    """Whether the value is a number without quotes, and the name says tokens: `output_tokens`."""
    return (
        sample.is_generic
        and sample.value.isdigit()
        and sample.name_words[-1:] == ["tokens"]
        and sample.before[-1:] not in {b'"', b"'"}
    )


def is_session_id(sample: Sample) -> bool:
    """Whether a UUID numbers a session or a request, by its name: `X-Tfs-Session`, `clientRequestToken`."""
    words = sample.name_words
    return (
        sample.is_generic
        and (words[-1:] == ["session"] or words[-3:] == ["client", "request", "token"])
        and _UUID.fullmatch(sample.value) is not None
    )


def is_encoded_object(sample: Sample) -> bool:
    """Whether the value is a JSON object in base64 in which no field has a name for a credential."""
    value = sample.value
    if not sample.is_generic or not value.startswith(("ey", "ew")) or len(value) > _MAX_ENCODED:
        return False
    try:
        fields = json.loads(base64.b64decode(value + "=" * (-len(value) % 4), altchars="-_", validate=True))
    except ValueError:
        return False
    return isinstance(fields, dict) and not any(find_noun(name.encode()) for name in fields)


def is_entry_key(sample: Sample) -> bool:
    """Whether the name says only `key`, as the entries of maps do, and their identifiers."""
    if not sample.is_generic or sample.name.lower() not in _ENTRY_KEYS or sample.name.isupper():
        return False
    if sample.name[0] == "K":
        return _LABEL.search(sample.before) is not None
    return _ENTRY.search(sample.before) is not None


def is_public_key(sample: Sample) -> bool:
    """Whether the name says that the key is public: `disqusPublicKey`, `site_key`."""
    words = sample.name_words
    if sample.is_generic and (_PUBLIC_LABEL.search(sample.before) or _is_search_key(sample)):
        return True
    return "secret" not in words and any(
        first in {"public", "pub", "publishable", "site", "website", "widget"}
        and second in {"key", "keys", "token"}
        for first, second in pairwise(words)
    )


def _is_search_key(sample: Sample) -> bool:
    """Whether the key searches an index of Algolia that is named beside it: each reader of a site gets it."""
    return (
        sample.name_words == ["api", "key"]
        and _HEX_KEY.fullmatch(sample.value) is not None
        and re.search(
            rb"\bindex_?Name\b", sample.data[max(0, sample.start - _BYTES_NEAR) : sample.end + _BYTES_NEAR]
        )
        is not None
    )


def is_address(sample: Sample) -> bool:
    """Whether the value is an address without a user, or a path."""
    return sample.is_generic and _ADDRESS.fullmatch(sample.value) is not None


def is_name_list(sample: Sample) -> bool:
    """Whether the value is a list of at least four names, or of two constants."""
    value = sample.value
    if not sample.is_generic:
        return False
    if _MARKUP_NAMES.fullmatch(value) or _is_sibling(sample) or _LIST_OF_VALUES.search(sample.before):
        return True
    if _ITEMS_BEFORE.search(sample.before) and _ITEM_AFTER.match(sample.after):
        return random_bits(value) < _MAX_RANDOM_BITS
    if _LIST_OF_CONSTANTS.fullmatch(value):
        return any(map(str.isalpha, value)) and ("_" in value or value.count(",") > 1)
    return _LIST_OF_NAMES.fullmatch(value) is not None and random_bits(value) < _MAX_RANDOM_BITS


def _is_sibling(sample: Sample) -> bool:
    """Whether the value is a name in a list after one with the same beginning: `"db_password", "db_host"`."""
    found = _LAST_STRING.search(sample.before)
    if found is None:
        return False
    stem = re.split(r"[._-]", found[1].decode("latin-1"))[:-1]
    return len("".join(stem)) > 1 and re.split(r"[._-]", sample.value)[: len(stem)] == stem


def is_other_argument(sample: Sample) -> bool:
    """Whether the name is a word in a text, or a part of a host, and the value is the argument after it."""
    if not sample.is_generic:
        return False
    if _VERB.search(sample.before):
        return True
    if _ACTION_ON_CREDENTIALS.search(sample.before) or _CODE_IN_ATTRIBUTE.search(sample.before):
        return True
    if _OWN_METHOD.search(sample.before) and _WORDS_OF_NAME.fullmatch(sample.value):
        return True
    found = _LAST_STRING.search(sample.before)
    return _STRING_WITH_NAME.search(sample.before) is not None or (
        found is not None
        and (found[1][:1] == b"/" or _HOST_NAME.fullmatch(found[1].decode("latin-1")) is not None)
    )
