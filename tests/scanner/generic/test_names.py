"""Names say which kind of credential their values are."""

import pytest

from outcrop.scanner.generic.names import Noun, find_noun


@pytest.mark.parametrize(
    ("name", "noun"),
    [
        ("password", Noun.PASSWORD),
        ("DB_PASSWORD", Noun.PASSWORD),
        ("spring.datasource.password", Noun.PASSWORD),
        ("dbPass", Noun.PASSWORD),
        ("mysqlpwd", Noun.PASSWORD),
        ("IDENTIFIED BY", Noun.PASSWORD),
        ("clientSecret", Noun.SECRET),
        ("api-key", Noun.SECRET),
        ("ENCRYPTION_KEY", Noun.SECRET),
        ("secretKey", Noun.SECRET),
        ("authToken", Noun.SECRET),
        ("S3_ACCESS", Noun.KEY),
        ("AWS_SECRET_ACCESS", Noun.SECRET),
        ("access", None),
        ("lastAccessed", None),
        ("key", Noun.KEY),
        ("salt", Noun.KEY),
        ("password_field", None),
        ("surrogates.duobypass", None),
        ("mergeKey", None),
        ("dataKey", Noun.KEY),
        ("token_url", None),
        ("tokenType", None),
        ("keyCode", None),
        ("public_key", None),
        ("server.public.key", None),
        ("encrypted_key", None),
        ("encrypted.password", None),
        ("xpack.encryptedSavedObjects.encryptionKey", Noun.SECRET),
        ("publicKeyToken", None),
        ("primary_key", None),
        ("secret_name", None),
        ("pass_fds", None),
        ("compass", None),
        ("monkey", None),
        ("tokenizer", None),
        ("author", None),
        ("nextPageToken", None),
        ("resetToken", Noun.KEY),
        ("changeToken", Noun.KEY),
        ("oauth_request_token", Noun.KEY),
        ("skey", Noun.KEY),
        ("hkey", None),
    ],
)
def test_find_noun_reads_the_kind_of_credential_from_a_name(name, noun):
    assert find_noun(name.encode()) is noun
