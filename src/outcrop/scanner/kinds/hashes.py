"""Digests, message authentication codes, salts and password hashes: no credential follows from them."""

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import Noun, find_noun, word_set
from outcrop.scanner.kinds.kind import Kind, Sample, split_words

NAMED_DIGEST = Kind(
    "named-digest", "a digest or a MAC: the value begins with the name of the algorithm", None
)
DIGEST_FIELD = Kind("digest-field", "a digest, a MAC or a signature, by the name of its field", None)
SALT = Kind("salt", "a number used once, or a salt that is stored beside what it protects")
PASSWORD_HASH = Kind(
    "password-hash", "the hash of a password: an algorithm or an iteration count is beside it", None
)
STORED_HASH = Kind("stored-hash", "as many digits as a hash has, as the password of a user in a record")
HASHED_CREDENTIAL = Kind(
    "hashed-credential", "the hash or the encrypted form of a credential, by its name", None
)

_NAMED_DIGEST = regex(
    r"(?i)(?:hmac[-_]?|[a-z]{2,8}[-_])?(?:sha-?(?:1|2|3|224|256|384|512)|md5|blake[23][bs]?)[:=-].*|vault:v[0-9]{1,3}:.*"
)
_DIGEST_WORDS = word_set(
    "hmac hash digest checksum checksums fingerprint integrity etag signature sha md crc thumbprint"
)
_HASHED_WORDS = word_set("hashed hash digest digests encrypted ciphertext crypted encoded")
_HEX_DIGEST = regex(r"(?:[0-9A-Fa-f]{2}){16,64}")
_BASE64_DIGEST = regex(r"[0-9A-Za-z+/_-]{22,88}={0,2}")
_SALTED_HASH = regex(r"[0-9a-f]{32,128}:[^:\s]{1,64}(?::[0-9]{1,2}){1,3}")  # with its salt and its version
_HASH_DIGITS = regex(r"[0-9a-f]{32}|[0-9a-f]{38,40}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{126,128}")
_LONG_HASH = 126  # digits; nobody makes a password so long
_USER_FIELD = regex(
    rb"(?i)\b\w{0,12}(?:user|login|e?mail|salt|person|uid)\w{0,12}[\"'`]?\s{0,2}[:=]|<column\b"
)
_NONCE_WORDS = word_set("nonce iv cnonce")
_ITERATIONS = regex(
    rb"(?i)[\"'_]?(?:hash_?iterations|iterations?|rounds|pbkdf2|scrypt|argon2|bcrypt|cost_?factor)"
    rb"[\"']?[ \t]{0,3}[:=,]"
)
_HASH_OF_PASSWORD = regex(
    rb"(?i)(?:password|passwd)[_-]?(?:hash|digest|salt)|hashed[_-]?(?:password|secret)|secretdata|hashedsaltedvalue"
)
_BYTES_NEAR = 300
_HASH_CALL = regex(
    rb"(?i)\b(?:md5|sha-?[0-9]{1,3}|hash|bcrypt|crypt|hmac|digest)\w*\([^()\n]{0,80}\)\W{1,12}$"
)
_HASH_NAME = regex(rb"(?i)[\"'](?:\w{0,20}(?:hash|checksum)|etag|md5|sha1|sha256)[\"']\s{0,2}:\s{0,2}[\"']$")


def is_named_digest(sample: Sample) -> bool:
    """Whether the value begins with the name of a hash function: `hmac-sha256:…`, `sha512-…`."""
    return sample.is_generic and _NAMED_DIGEST.fullmatch(sample.value) is not None


def is_digest_field(sample: Sample) -> bool:
    """Whether the last word of the name is one for a digest, and the value has the length of a digest."""
    if sample.has_prefix or not _is_digest(sample.value):  # the name takes longer
        return False
    if not sample.is_generic:
        return _HASH_NAME.search(sample.before) is not None
    if _HASH_CALL.search(sample.before):
        return True
    words = [word for word in sample.name_words if not word.isdigit()]
    return bool(words) and (
        words[-1] in _DIGEST_WORDS or (words[-1] in {"value", "hex"} and words[-2:-1] == ["hash"])
    )


def is_salt(sample: Sample) -> bool:
    """Whether the name is that of a number used once, or of a salt in stored data, not in a program."""
    if not sample.is_generic:
        return False
    words = [word for word in sample.name_words if not word.isdigit()]
    if not words:
        return False
    if words[-1] in _NONCE_WORDS or words[-1].endswith("nonce"):
        return "auth" not in words
    is_assigned = b"=" in sample.before[-16:] and b"<" not in sample.before
    return words[-1].endswith("salt") and not is_assigned and not sample.name.isupper()


def is_password_hash(sample: Sample) -> bool:
    """Whether a digest has an iteration count or the word for a hash near it, as in stored credentials."""
    if not sample.is_generic:
        return False
    if _SALTED_HASH.fullmatch(sample.value):
        return True
    if not _is_digest(sample.value):
        return False
    near = sample.data[max(0, sample.start - _BYTES_NEAR) : sample.end + _BYTES_NEAR]
    return _ITERATIONS.search(near) is not None or _HASH_OF_PASSWORD.search(sample.before[-80:]) is not None


def is_stored_hash(sample: Sample) -> bool:
    """Whether digits, as many as a hash has, are the password in a record that also names a user.

    Not in settings: a password may have been made of random digits.
    """
    if not sample.is_generic or _HASH_DIGITS.fullmatch(sample.value) is None or sample.name.isupper():
        return False
    if find_noun(sample.name.encode()) is not Noun.PASSWORD:
        return False
    return len(sample.value) >= _LONG_HASH or _USER_FIELD.search(sample.before + sample.after) is not None


def is_hashed_credential(sample: Sample) -> bool:
    """Whether the name says that its value is hashed or encrypted: `hashedAccessKey`, `encrypted_token`."""
    if not sample.is_generic:
        return False
    words = [word.lower() for word in split_words(sample.name.rpartition(".")[2])]
    return not _HASHED_WORDS.isdisjoint(words) and "secret" not in words[-1:]


def _is_digest(value: str) -> bool:
    """Whether a value is hexadecimal or base64 and has the length of a digest."""
    return (_HEX_DIGEST.fullmatch(value) or _BASE64_DIGEST.fullmatch(value)) is not None
