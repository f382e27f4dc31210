"""What a name says about the value that is assigned to it: the noun in it, and the words that turn it into something else."""

import re
from enum import StrEnum
from functools import lru_cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Noun(StrEnum):
    """What the name calls the value, by how little else such a name is used for."""

    PASSWORD = "password"  # noqa: S105 - the value may be one that a person made up
    SECRET = "secret"  # noqa: S105 - the value must not be a plain word
    KEY = "key"  # the value must look drawn by chance


_NOUNS = {
    Noun.PASSWORD: "password passwords passwort passwd passphrase passcode pwd pswd passw pass pw psk userpwd bindpw rootpw requirepass masterauth "
    "contrasena contraseña senha motdepasse wachtwoord haslo parola kennwort userpass",
    Noun.SECRET: "secret secrets token tokens apikey apitoken apisecret credential credentials cred creds bearer jwt authorization sshkey "
    "accesskey secretkey privatekey authkey authtoken accesstoken appsecret appkey clientsecret masterkey",
    Noun.KEY: "key keys salt nonce auth seed iv otp pin session cookie sid api sig signature pepper hmac totp license licence serial "
    "certificate cert basic webhook",
}
_NOUN = {word: noun for noun, words in _NOUNS.items() for word in words.split()}
_ENDINGS = (
    ("password", Noun.PASSWORD), ("passwd", Noun.PASSWORD), ("passphrase", Noun.PASSWORD), ("passwort", Noun.PASSWORD), ("pwd", Noun.PASSWORD),
    ("pass", Noun.PASSWORD), ("secret", Noun.SECRET), ("token", Noun.SECRET), ("apikey", Noun.SECRET), ("accesskey", Noun.SECRET),
    ("secretkey", Noun.SECRET), ("authkey", Noun.SECRET), ("key", Noun.KEY), ("salt", Noun.KEY), ("nonce", Noun.KEY),
)  # fmt: skip
_OTHER_WORDS = frozenset(
    "compass bypass trespass surpass overpass underpass encompass monkey turkey donkey hockey jockey whiskey hotkey sortkey pubkey publickey "
    "primarykey foreignkey keykey sitekey passkey basalt asphalt cobalt".split()
)
# Before "key": it opens something, so its value is a secret.
_OPENS = frozenset(
    "api access secret private encryption encrypt encrypted decryption decrypt signing sign signature master account shared service license "
    "licence storage client consumer admin app application auth authentication authorization hmac aes jwt crypto cipher des rsa security "
    "subscription function functions webhook deploy deployment integration ingest rest write read bot developer partner data dev server "
    "maps session verify host ssh pgp gpg tls ssl pkcs user trading exchange xapi hash".split()
)
# Before the noun: it is public, or names a thing among others.
_NOT_AFTER = frozenset(
    "public pub primary foreign sort cache partition range row unique idempotency composite publishable cancellation continuation page next "
    "prev previous site hot arrow shortcut translation message label csrf xsrf lookup group column field index map dict object bucket route "
    "query meta i18n lang locale header cookie storage_ no without has is use show hide toggle forgot reset change confirm_ enter input "
    "missing invalid wrong bad empty validate check require required update_ generate hashed hash_ encoded public_ lexer parser syntax "
    "registry package lock request action forward backward starting lifecycle sync resume watch scroll pagination etag finger fingerprint host_ known".split()
)
# After the noun: it is about the value, not the value.
_NOT_BEFORE = frozenset(
    "field fields name names label labels id ids url uri urls endpoint path paths file files filename dir folder type types length len size "
    "count min max ttl expiry expire expires expiration exp age timeout regex regexp pattern format policy prompt hint help title message msg "
    "error errors placeholder input button form selector class column columns prefix suffix param params parameter attribute attr property "
    "provider store manager service source alias algorithm algorithms algo alg method mode hasher hashers encoder validator validators "
    "validation strength reset changed required enabled disabled version issuer audience scope scopes index ref refs arn owner group kind code "
    "codes board word words chain frame frames map press up down binding bindings stroke space range set ization izer ize hash hashes digest "
    "encrypted fingerprint info description desc comment docs doc status state view page screen dialog controller handler factory builder "
    "interface config configuration settings options opts rule rules policy template tpl link links list header headers cookie pair pairs "
    "usage uses used lifetime duration interval limit limits quota rotation spec schema model table event events action actions request "
    "response result results test_ tests template ring vault manager agent server host port domain address email user username users "
    "tag tags location position pos start end offset line lines idx num number count counter total storage cache pool bucket key_ stream "
    "reader writer parser lexer generator callback listener hook hooks middleware guard strategy grant realm uuid guid dn sub kid stdin mgr sha md crc checksum fingerprint hashing encode decode split replace startswith endswith strip startsof "
    "contains iexact exact match matches verifier wordless fds through along expired revoked exists present visible shown needed".split()
)
_PUBLIC = frozenset({"public", "pub", "pubkey"})
_NEUTRAL = frozenset("s value val str string text plain plaintext raw b64 base base64 hex bytes default prod production dev test live word phrase code key db admin root user smtp mail old new".split())


@lru_cache(maxsize=8_192)
def noun_of(name: bytes) -> Noun | None:
    """Read a name: the noun that its value goes by, None where it is no credential's name."""
    words = [word.lower() for word in _WORD.findall(name.decode("utf-8", "replace"))]
    if not _PUBLIC.isdisjoint(words):
        return None
    if words[-2:] == ["identified", "by"]:
        return Noun.PASSWORD
    for at in range(len(words) - 1, -1, -1):
        word = words[at]
        noun = _noun(word)
        if noun is None:
            if word in _NOT_BEFORE:
                return None
            continue
        if word == "pass" and at + 1 < len(words) and words[at + 1] not in _NEUTRAL:
            return None  # a verb
        before = words[at - 1] if at else ""
        if before in _NOT_AFTER:
            return None
        if noun is Noun.KEY and word in {"key", "keys"} and (before in _OPENS or (before and _noun(before))):
            return Noun.SECRET
        if noun is Noun.KEY and before and (better := _noun(before)) and better is not Noun.KEY:
            return better
        return noun
    return None


def _noun(word: str) -> Noun | None:
    noun = _NOUN.get(word)
    if noun is None and len(word) > 4 and word not in _OTHER_WORDS:
        return next((noun for ending, noun in _ENDINGS if word.endswith(ending)), None)
    return noun
