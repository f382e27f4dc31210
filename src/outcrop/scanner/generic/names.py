"""What a name says about the value that is assigned to it: the noun in it, and the words that turn it into something else."""

import re
from enum import StrEnum
from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WORDS: dict[str, dict[str, frozenset[str]]] = {
    "nouns": {
        # The value may be one that a person made up.
        "password": _words("""
            password passwords passwort passwd passphrase passcode pwd pswd passw pass passe contrase pw psk userpwd bindpw rootpw
            requirepass masterauth contrasena contraseña senha motdepasse wachtwoord haslo parola kennwort userpass
        """),
        # The value must not be a plain word.
        "secret": _words("""
            secret secrets token tokens apikey apitoken apisecret credential credentials cred creds bearer jwt authorization sshkey
            accesskey secretkey privatekey authkey authtoken accesstoken appsecret appkey clientsecret masterkey
        """),
        # The value must look drawn by chance.
        "key": _words("""
            key keys salt nonce auth seed iv otp pin session cookie sid api sig signature pepper hmac totp license licence serial
            certificate cert basic webhook verifier
        """),
    },
    # Names that only end like a noun.
    "names": {
        "other": _words("""
            asphalt basalt bypass cobalt compass donkey encompass fkey foreignkey hkey hockey hotkey jockey keykey monkey overpass
            passkey primarykey pubkey publickey sitekey sortkey surpass trespass turkey underpass vkey whiskey
        """),
        # Before "key": it opens something, so its value is a secret.
        "opens": _words("""
            api access secret private encryption encrypt decryption decrypt signing sign signature master account shared
            service license licence storage client consumer admin app application auth authentication authorization hmac aes jwt crypto
            cipher des rsa security subscription function functions webhook deploy deployment integration ingest rest write read bot
            developer partner data dev server maps oauth session verify host ssh pgp gpg tls ssl pkcs user trading exchange xapi hash
        """),
        # Before the noun: it is public, or one thing among others.
        "not_after": _words("""
            public pub primary foreign sort cache partition range row unique idempotency composite publishable cancellation continuation
            page next prev previous site hot arrow shortcut translation message label csrf xsrf lookup group column field index map dict
            object bucket route query meta i18n lang locale header hashed encoded lexer parser syntax registry package lock action
            forward backward starting lifecycle sync resume watch scroll pagination etag finger fingerprint known websocket socket
            manager dkim encrypted crypted
        """),
        # Before the noun: what is done with it, as labels and flags are called; only what nobody would write is a value there.
        "verbs": _words("""
            no without has is use ask prompt show hide toggle forgot reset change enter input missing invalid wrong bad empty validate check
            require required generate request
        """),
        # After the noun: about the value, not the value.
        "not_before": _words("""
            backend backends engine driver plugin hashing field fields name names label labels id ids url uri urls endpoint path paths
            file files filename dir folder type types length len lengths size sizes count min max ttl expiry expire expires expiration
            exp age timeout regex regexp pattern format policy prompt hint help title message msg error errors placeholder input button
            form selector class column columns prefix suffix param params parameter attribute attr property provider store manager
            service source alias algorithm algorithms algo alg method mode hasher hashers encoder validator validators validation
            strength reset changed required enabled disabled version issuer audience scope scopes index ref refs arn owner group kind
            code codes board word words chain frame frames map press up down binding bindings stroke space range set ization izer ize
            hash hashes digest encrypted fingerprint info description desc comment docs doc status state view page screen dialog
            controller handler factory builder interface config configuration settings options opts rule rules template tpl link links
            list header headers cookie pair pairs usage uses used lifetime duration interval limit limits quota rotation spec schema
            model table event events action actions request response result results tests ring vault agent server host port domain
            address email user username users tag tags location position pos start end offset line lines idx num number counter total
            storage cache pool bucket stream reader writer parser lexer generator callback listener hook hooks middleware guard strategy
            grant realm uuid guid dn sub kid stdin mgr sha md crc checksum hashing encode decode split replace startswith endswith strip
            startsof contains iexact exact match matches wordless fds through along expired revoked exists present visible shown needed
        """),
        # After the noun: says nothing.
        "neutral": _words("""
            s value val str string text plain plaintext raw b64 base base64 hex bytes default prod production dev test live word phrase
            code key db admin root user smtp mail old new repeat repeated confirm confirmation again
        """),
    },
    "values": {
        # In a value they speak of a stand-in, or of a name.
        "common": _words("""
            test tests testing tester user users admin administrator root guest example demo sample foo bar baz default temp tmp abc
            abcd abcde hello world change changeme some value string name dummy fake mock none null true false undefined key pass pwd
            auth login account client server service local localhost dev prod production staging public private data config id ref type
            url host database mysql postgres redis mongo oracle welcome letmein master super qwerty qwe asd asdf zxc xxx field input
            button form label text title version base64 utf sha md5 hmac rsa aes cbc ecdsa http https html json xml yaml request
            response header param enabled disabled oidc saml ldap kerberos smtp imap jdbc odbc sudo ajax kube rsvp uuid asap fyi
        """),
        # Of these, what speaks of a stand-in whatever digits follow it; to the others people add a year and call it a password.
        "filler": _words("""
            test tests testing tester example demo sample foo bar baz temp tmp abc abcd abcde some value string name dummy fake mock
            none null true false undefined qwerty qwe asd asdf zxc xxx
        """),
        # What else stands where a password would: a type, a state, a way to ask, and the word itself in other languages.
        "instead": _words("""
            string str text varchar char bytes byte number integer int bool boolean object array any unknown function symbol required
            optional nullable confirmed hidden masked encrypted hashed plain plaintext cleartext secure prompt ask input always never
            present absent missing invalid incorrect wrong mismatch empty blank unset auto generated random automatic manual same digest
            remote internal external files compat define undef fail failed warn warning error incomplete mixed email phone username
            title keyring keychain stdin file expired changed updated omitted passthrough sensitive passwort heslo salasana haslo parola
            lozinka geslo sifre wachtwoord adgangskode kodeord losenord passord jelszo senha clave parool slaptazodis parole sandi
            codice contrasena motdepasse
        """),
    },
    "code": {
        # A value that is handed to one of these stays the same value.
        "converts": _words("""
            type fill sendkeys send_keys tobe toequal eq with val bytes byte string str from new to_string some char text qstringliteral
            qstring qlatin1string securestring convertto-securestring decodestring unhexlify b64decode frombase64string utf8 secret
            secretstr secretvalue password base64 nsstring getbytes ok of just option n l tostring return is was or and bytearray cstr
            cstring freeze token value literal fromstring getorelse unwrap_or orelse getenv get env setproperty setpassword const let
            var val auto fromhex fromhexstring hex_decode hexdecode decodehex decode_hex hex2bin hextobytes hexstringtobytes
            parsehexbinary b16decode decode64 strict_decode64 urlsafe_decode64 urlsafe_b64decode standard_b64decode base64_decode
            decodebase64 base64decode frombase64 atob mustdecode a2b_hex a2b_base64 decode
        """),
        # How the name of a type ends that holds a value.
        "types": _words("""
            value string str secret password credential credentials token bytes
        """),
        # A method that is handed the value of what it is called on: it compares, or fills it in, or makes it.
        "takes": _words("""
            equals equal eq is equalsignorecase type fill getorelse orelse unwrap_or fromstring from_string of from valueof literal
            parse new
        """),
        # Endings of files in languages that have their texts in quotes: unquoted, a right side is an expression.
        "languages": _words("""
            py pyi pyx js jsx mjs cjs ts tsx vue svelte java kt kts scala sc groovy gradle go rs c h cc cpp cxx hh hpp hxx ino m mm cs
            vb fs php phtml rb erb rake swift dart lua pl pm hs ex exs erl hrl clj cljs ml mli r jl sql tf hcl proto thrift graphql sol
            zig nim d pas asm s v vhd json ipynb css scss less ps1 psm1 coffee elm idl avsc cmake bzl bazel
        """),
    },
}


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Noun(StrEnum):
    """What the name calls the value, by how little else such a name is used for."""

    PASSWORD = "password"  # noqa: S105 - the value may be one that a person made up
    SECRET = "secret"  # noqa: S105 - the value must not be a plain word
    KEY = "key"  # the value must look drawn by chance


_NOUN = {word: Noun(noun) for noun, words in WORDS["nouns"].items() for word in words}
_ENDINGS = {
    Noun.PASSWORD: ("password", "passwd", "passphrase", "passwort", "pwd", "pass"),
    Noun.SECRET: ("secret", "token", "apikey", "accesskey", "secretkey", "authkey"),
    Noun.KEY: ("key", "salt", "nonce"),
}
_OPENS_NOTHING = frozenset(
    {"public", "pub", "pubkey", "encrypted", "crypted"}
)  # anywhere in the last part of a name with points
_NAMES = WORDS["names"]


@lru_cache(maxsize=8_192)
def noun_of(name: bytes) -> Noun | None:
    """Read a name: the noun that its value goes by, None where it is no credential's name."""
    words = _words_of(name)
    if words[-2:] == ["identified", "by"]:
        return Noun.PASSWORD
    if not _OPENS_NOTHING.isdisjoint(_words_of(name.rpartition(b".")[2]) if b"." in name else words):
        return None
    for at in range(len(words) - 1, -1, -1):
        noun = _noun(words[at])
        if noun is not None:
            before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
            return _as_named(noun, words[at], before, after)
        if words[at] in _NAMES["not_before"]:
            return None
    return None


def _words_of(name: bytes) -> list[str]:
    return [word.lower() for word in _WORD.findall(name.decode("utf-8", "replace"))]


def is_noun(name: bytes) -> bool:
    """Tell whether a name ends with a noun itself: `setPassword`, not `splitpasswd` or `passValue`."""
    words = _words_of(name)
    return bool(words) and words[-1] in _NOUN


def is_about(name: bytes) -> bool:
    """Tell whether a name ends with a word for what is known of a credential: `clientId`, `token_url`."""
    words = _words_of(name)
    return bool(words) and words[-1] in _NAMES["not_before"]


def _as_named(noun: Noun, word: str, before: str, after: str) -> Noun | None:
    """Read a noun with the words beside it."""
    if before in _NAMES["not_after"] or (
        word == "pass" and after and after not in _NAMES["neutral"]
    ):  # to pass something is a verb
        return None
    if before in _NAMES["verbs"]:
        return Noun.KEY
    other = _noun(before) if before else None
    if noun is Noun.KEY and word in {"key", "keys"} and (before in _NAMES["opens"] or other):
        return Noun.SECRET
    return other if noun is Noun.KEY and other else noun


def _noun(word: str) -> Noun | None:
    noun = _NOUN.get(word)
    if noun is None and len(word) > 3 and word not in _NAMES["other"]:
        if len(word) == 4:  # skey, nkey: a letter says which
            return Noun.KEY if word.endswith("key") else None
        return next((noun for noun, endings in _ENDINGS.items() if word.endswith(endings)), None)
    return noun
