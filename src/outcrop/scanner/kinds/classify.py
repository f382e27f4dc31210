"""Find the kind of a value: the first of all kinds whose function recognises it."""

from outcrop.scanner.kinds import (
    code,
    configurations,
    hashes,
    identifiers,
    keys,
    media,
    operating_systems,
    packages,
    paths,
    published,
    translations,
    web_pages,
)
from outcrop.scanner.kinds.kind import Kind, Recognizer, Sample

# In the order in which they are tried: kinds that drop a value come before those that lower it.
RECOGNIZERS: tuple[tuple[Kind, Recognizer], ...] = (
    (packages.PACKAGE_VERSION, packages.is_package_version),
    (packages.LOCK_ENTRY, packages.is_lock_entry),
    (hashes.NAMED_DIGEST, hashes.is_named_digest),
    (hashes.DIGEST_FIELD, hashes.is_digest_field),
    (hashes.HASHED_CREDENTIAL, hashes.is_hashed_credential),
    (hashes.PASSWORD_HASH, hashes.is_password_hash),
    (web_pages.PAGE_TOKEN, web_pages.is_page_token),
    (web_pages.SIGNED_LINK, web_pages.is_in_signed_link),
    (configurations.KUBERNETES_FIELD, configurations.is_kubernetes_field),
    (configurations.TEMPLATE, configurations.is_template),
    (translations.MARKER, translations.is_marker),
    (operating_systems.COMMAND_ARGUMENT, operating_systems.is_command_argument),
    (operating_systems.ACCOUNT_LINE, operating_systems.is_account_line),
    (keys.KEY_FINGERPRINT, keys.is_key_fingerprint),
    (media.MEDIA, media.is_in_media),
    (media.BINARY_DATA, media.is_in_binary_data),
    (media.MINIFIED_CODE, media.is_in_minified_code),
    (code.CODE, code.is_code),
    (code.NUMBER, code.is_number),
    (code.SESSION_ID, code.is_session_id),
    (identifiers.ENTITY_KEY, identifiers.is_entity_key),
    (identifiers.TIME, identifiers.is_time),
    (identifiers.INVITATION, identifiers.is_invitation),
    (code.ENCODED_OBJECT, code.is_encoded_object),
    (code.ENTRY_KEY, code.is_entry_key),
    (code.PUBLIC_KEY, code.is_public_key),
    (code.ADDRESS, code.is_address),
    (code.NAME_LIST, code.is_name_list),
    (code.OTHER_ARGUMENT, code.is_other_argument),
    (translations.MESSAGE, translations.is_message),
    (translations.LABEL, translations.is_label),
    (translations.TABLE_WORD, translations.is_table_word),
    (hashes.SALT, hashes.is_salt),
    (hashes.STORED_HASH, hashes.is_stored_hash),
    (keys.ENCRYPTED_KEY, keys.is_encrypted_key),
    (keys.EMPTY_KEY, keys.is_empty_key),
    (keys.UNSIGNED_TOKEN, keys.is_unsigned_token),
    (configurations.PASSWORD_WORD, configurations.is_password_word),
    (configurations.SECRET_NAME, configurations.is_secret_name),
    (configurations.OTHER_COOKIE, configurations.is_other_cookie),
    (published.PUBLISHED, published.is_published),
    (published.MALFORMED, published.is_malformed_token),
    (published.SPELLED_WORDS, published.is_spelled_words),
    (code.CONSTANT_NAME, code.is_constant_name),
    (web_pages.SAVED_PAGE, web_pages.is_in_saved_page),
)
KINDS: dict[str, Kind] = {
    kind.id: kind for kind in (*(kind for kind, _ in RECOGNIZERS), paths.TRANSLATION, paths.LOCK_FILE)
}


def classify(sample: Sample) -> Kind | None:
    """Return the kind of text that the value is; None if it may be a credential."""
    return next((kind for kind, recognizes in RECOGNIZERS if recognizes(sample)), None)
