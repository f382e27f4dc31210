"""Decide from a name which kind of credential its value would be.

`find_noun` splits a name into words and reads them from the last to the first. The first noun for a
credential decides, unless a word beside it turns the name into something else: `public_key`,
`password_field`.
"""

from enum import StrEnum
from functools import lru_cache

from outcrop.lazy_regex import regex

_WORD = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Noun(StrEnum):
    """The kind of credential that a name announces for its value, by the noun in the name."""

    PASSWORD = "password"  # noqa: S105 - the value may be one that a person made up
    SECRET = "secret"  # noqa: S105 - the value must not be a plain word
    KEY = "key"  # the value must look random: such names are used for many other things


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text, which are separated by spaces and line breaks."""
    return frozenset(text.split())


_WORDS_OF_NOUN = {
    Noun.PASSWORD: word_set("""
        password passwords passwort passwd passphrase passcode pwd pswd passw pass passe contrase pw psk
        userpwd bindpw rootpw requirepass masterauth contrasena contraseña senha motdepasse wachtwoord
        haslo parola kennwort userpass
    """),
    Noun.SECRET: word_set("""
        secret secrets token tokens apikey apitoken apisecret credential credentials cred creds bearer jwt
        authorization sshkey accesskey secretkey privatekey authkey authtoken accesstoken appsecret appkey
        clientsecret masterkey
    """),
    Noun.KEY: word_set("""
        key keys salt nonce auth seed iv otp pin session cookie sid api sig signature pepper hmac totp
        license licence serial certificate cert basic webhook verifier
    """),
}
_NOUN_OF_WORD = {word: noun for noun, words in _WORDS_OF_NOUN.items() for word in words}
# The last two words of a name.
_NOUN_OF_PHRASE = {
    "identified by": Noun.PASSWORD,
    "auth code": Noun.SECRET,
    "authorization code": Noun.SECRET,
    "secret id": Noun.SECRET,
}
# Endings of longer words that are written together: `dbpassword`, `gittoken`.
_ENDINGS = {
    Noun.PASSWORD: ("password", "passwd", "passphrase", "passwort", "pwd", "pass"),
    Noun.SECRET: ("secret", "token", "apikey", "accesskey", "secretkey", "authkey"),
    Noun.KEY: ("key", "salt", "nonce"),
}
# Words that only end like a noun.
_NO_NOUNS = word_set("""
    asphalt basalt cobalt compass donkey encompass fkey foreignkey hkey hockey hotkey jockey keykey
    monkey overpass passkey primarykey pubkey publickey sitekey sortkey surpass trespass turkey underpass
    vkey whiskey
""")
# Before "key": the key opens something, so it is a secret.
_BEFORE_SECRET_KEY = word_set("""
    api access secret private encryption encrypt decryption decrypt signing sign signature master account
    shared service license licence storage client consumer admin app application auth authentication
    authorization hmac aes jwt crypto cipher des rsa security subscription function functions webhook
    deploy deployment integration ingest rest write read bot developer partner dev server maps oauth
    session verify host ssh pgp gpg tls ssl pkcs user trading exchange xapi hash
""")
# Before the noun: the value is public, or an index, a page or a header among others.
_NO_CREDENTIAL_AFTER = word_set("""
    public pub primary foreign sort cache partition range row unique idempotency composite publishable
    cancellation continuation page next prev previous site hot arrow shortcut translation message label
    csrf xsrf lookup group column field index map dict object bucket route query meta i18n lang locale
    header hashed encoded lexer parser syntax registry package lock action forward backward starting
    lifecycle sync resume watch scroll pagination etag finger fingerprint known websocket socket manager
    merge job permalink module
    dkim encrypted crypted alert incident dedup results
""")
# Before the noun: an action on the credential. Labels and flags have such names; the value must look random.
_ACTIONS = word_set("""
    no without has is use ask prompt show hide toggle forgot reset change enter input missing invalid
    wrong bad empty validate check require required generate request
""")
# After the noun: the value is an attribute of the credential, not the credential.
_ATTRIBUTES = word_set("""
    backend backends engine driver plugin hashing field fields name names label labels id ids url uri urls
    endpoint path paths file files filename dir folder type types length len lengths size sizes count min
    max ttl expiry expire expires expiration exp age timeout regex regexp pattern format policy prompt
    hint help title message msg error errors placeholder input button form selector class column columns
    prefix suffix param params parameter attribute attr property provider store manager service source
    alias algorithm algorithms algo alg method mode hasher hashers encoder validator validators validation
    strength reset changed required enabled disabled version issuer audience scope scopes index ref refs
    arn owner group kind code codes board word words chain frame frames map press up down binding bindings
    stroke space range set ization izer ize hash hashes digest encrypted fingerprint info description desc
    comment docs doc status state view page screen dialog controller handler factory builder interface
    config configuration settings options opts rule rules template tpl link links list header headers
    cookie pair pairs usage uses used lifetime duration interval limit limits quota rotation spec schema
    model table event events action actions request response result results tests ring vault agent server
    host port domain address email user username users tag tags location position pos start end offset
    line lines idx num number counter total storage cache pool bucket stream reader writer parser lexer
    generator callback listener hook hooks middleware guard strategy grant realm uuid guid dn sub kid
    stdin mgr sha md crc checksum hashing encode decode split replace startswith endswith strip startsof
    contains iexact exact match matches wordless fds through along expired revoked exists present visible
    shown needed eight helper helpers typ
""")
# After "pass": words with which it still means a password. Otherwise "pass" is a verb.
_AFTER_PASS = word_set("""
    s value val str string text plain plaintext raw b64 base base64 hex bytes default prod production dev
    test live word phrase code key db admin root user smtp mail old new repeat repeated confirm
    confirmation again
""")
# Anywhere in the last dotted part of a name: the value is not secret.
_NOT_SECRET = frozenset({"public", "pub", "pubkey", "encrypted", "crypted"})


@lru_cache(maxsize=8_192)
def find_noun(name: bytes) -> Noun | None:
    """Return the kind of credential that `name` announces for its value; None if it announces none.

    `name` is a complete name such as `db.adminPassword` or `IDENTIFIED BY`. Its last noun for a credential
    decides, together with the words beside it: `public_key` and `password_field` are None. The result is
    cached.
    """
    words = _split(name)
    if not _NOT_SECRET.isdisjoint(_split(name.rpartition(b".")[2]) if b"." in name else words):
        return None
    if (noun := _NOUN_OF_PHRASE.get(" ".join(words[-2:]))) is not None:
        return noun
    if len(words) > 1 and words[-1] == "access":  # `S3_ACCESS`, `SECRET_ACCESS`: an access key
        return find_noun(name[: name.lower().rindex(b"access")]) or Noun.KEY
    for at in range(len(words) - 1, -1, -1):
        noun = _noun_of_word(words[at])
        if noun is not None:
            before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
            return _adjust(noun, words[at], before, after)
        if words[at] in _ATTRIBUTES:
            return None
    return None


def ends_with_noun(name: bytes) -> bool:
    """Whether the last word of a name is exactly a noun for a credential: `setPassword`.

    False for `splitpasswd`, which only ends like one, and for `passValue`.
    """
    words = _split(name)
    return bool(words) and words[-1] in _NOUN_OF_WORD


@lru_cache(maxsize=2_048)
def is_secret_name(name: bytes) -> bool:
    """Whether a name says by itself that its value is a secret: `DB_PASSWORD`, `cookieSecret`, `secret_key`.

    It has two words or more, and ends with a noun for a password or a secret.
    """
    words = _split(name)
    if len(words) < 2 or _NO_CREDENTIAL_AFTER.intersection(words):
        return False
    return (
        words[-1] in _WORDS_OF_NOUN[Noun.PASSWORD]
        or words[-1] in {"secret", "apikey", "secretkey"}
        or (
            words[-1] == "key"
            and words[-2] in {"secret", "api", "access", "private", "encryption", "signing"}
        )
    )


def ends_with_attribute(name: bytes) -> bool:
    """Whether the last word of a name is an attribute of a credential: `clientId`, `token_url`."""
    words = _split(name)
    return bool(words) and words[-1] in _ATTRIBUTES


def _split(name: bytes) -> list[str]:
    """Return the words of a name in lower case: `dbPassword` and `DB_PASSWORD` are ["db", "password"].

    Digits and signs only separate words.
    """
    return [word.lower() for word in _WORD.findall(name.decode("utf-8", "replace"))]


def _adjust(noun: Noun, word: str, before: str, after: str) -> Noun | None:
    """Return the kind of credential that `word` means between its neighbours; None for no credential.

    `noun` is the kind that `word` means alone. `before` and `after` are the words before and after it in the
    name, or "" at the ends of the name. After a word such as `public` the result is None, after an action
    such as `reset` KEY; for `key` after `api` it is SECRET.
    """
    if before in _NO_CREDENTIAL_AFTER or (word == "pass" and after and after not in _AFTER_PASS):
        return None
    if before in _ACTIONS:
        return Noun.KEY
    noun_before = _noun_of_word(before) if before else None
    if noun is Noun.KEY and word in {"key", "keys"} and (before in _BEFORE_SECRET_KEY or noun_before):
        return Noun.SECRET
    return noun_before if noun is Noun.KEY and noun_before else noun


def _noun_of_word(word: str) -> Noun | None:
    """Return the kind of credential that a lower-case word names or ends with (`dbpassword`), or else None.

    A word of four letters may only end with `key`. Words of _NO_NOUNS (`monkey`) have no kind.
    """
    noun = _NOUN_OF_WORD.get(word)
    if noun is None and len(word) > 3 and word not in _NO_NOUNS and not word.endswith("bypass"):
        if len(word) == 4:  # `skey`, `nkey`: one letter before "key"
            return Noun.KEY if word.endswith("key") else None
        return next((noun for noun, endings in _ENDINGS.items() if word.endswith(endings)), None)
    return noun
