"""Placeholders are recognised, and no random token is taken for a placeholder."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.scanner.generic.placeholders import is_placeholder
from outcrop.scanner.patterns.entropy import bits_per_character, has_entropy

PLACEHOLDERS = [
    *r"""
        password PASSWORD pass passwd user secret Secret token key password1 testpass my_password db-password
        my-secret-token your-api-key YOUR_API_KEY_HERE yourpassword changeme CHANGE_ME_NOW change-it dummy
        placeholder
        <password> ${DB_PASS} prefix-${DB_PASS} $DB_PASS $(cat) {{password}} {password} {0} {} %s
        %(password)s %PASSWORD% #{password} <%=password%> [PASSWORD] @password@ __PASSWORD__ \(password)
        xxxx xxxxxxxxxxxx **** a****z ... abc...xyz ######## ________ -------- aaaaaaaa abababababab
        null None undefined todo TBD test test123 foo abc123 qwerty 123456 12345678 0000
        5char-5char-5char ABCD123ABCD123ABCD123ABCD123ABCD GOCSPX-YYY 123e4567-e89b-12d3-a456-426614174000
        root admin guest postgres minioadmin x-oauth-basic user:password admin:admin
        fake-token fakeApiKey0 sk-example-1 insert-your-key replace_me not-a-real-key invalid-token
        a1b2c3d4e5f60718 0123456789abcdef0123 abcdefghijklmnop cGFzc3dvcmQ= Y2hhbmdlbWU= dXNlcjpwYXNzd29yZA==
    """.split(),  # noqa: SIM905 - a list of eighty strings is harder to read
    "<your token>",
    "put your unique phrase here",
]
CREDENTIALS = """
    hunter2 S3cr3t!pw S3cr3t!Passw0rd P@ssw0rd Passw0rd! Summer2023 letmein! correct-horse-battery MyS3cretPw!
    admin123 root:Tr0ub4dor
    $ecr3t! pa%24s p*ss**w Kaffee-um-9 swordfish {SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk= password!#@498 password123
""".split()  # noqa: SIM905


@pytest.mark.parametrize("value", PLACEHOLDERS)
def test_a_placeholder_is_recognised(value):
    assert is_placeholder(value)


@pytest.mark.parametrize("value", CREDENTIALS)
def test_a_weak_password_is_no_placeholder(value):
    assert not is_placeholder(value)


# In two pieces, so that this file contains no complete token.
PUBLISHED = [
    ("AKIAIOSFODNN7", "EXAMPLE"),
    ("wJalrXUtnFEMI/K7MDENG/", "bPxRfiCYEXAMPLEKEY"),
    ("sk_test_4eC39Hq", "LyjWDarjtT1zdp7dc"),
    ("sk_test_BQokikJ", "OvBiI2HlWgH4olfQ2"),
    ("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsu", "Fq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="),
    ("C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nD", "uVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="),
    ("6LeIxAcTAAAAAGG-vFI1", "TnRWxMZNFuojJ4WifJWe"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJpZCI6MX0.", "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"),
    (
        "eyJhbGciOiJIUzI1NiJ9.",
        "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0.c2lnbmVkLXdpdGgtYW55dGhpbmc",
    ),
]


@pytest.mark.parametrize("pieces", PUBLISHED)
def test_an_example_of_an_issuers_documentation_is_a_placeholder(pieces):
    assert is_placeholder("".join(pieces))


def test_a_run_of_slashes_in_base64_is_no_placeholder():
    assert not is_placeholder("k8sq0Lm2Zx9v" + "/" * 10 + "wEaCXVzLW8d")
    assert is_placeholder("/" * 12)
    assert is_placeholder("k8sq0Lm2Zx9v" + "k" * 10 + "wEaCXVzLW8d")


def test_a_key_block_with_an_ellipsis_is_a_placeholder():
    body = "MIIEvQIBADANBgkqhkiG9w0BAQEF"
    assert is_placeholder(f"-----BEGIN PRIVATE KEY-----\n{body}\n...\n-----END PRIVATE KEY-----")
    assert not is_placeholder(f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----")


@pytest.mark.parametrize(
    "alphabet",
    [
        string.ascii_letters + string.digits,
        string.ascii_letters + string.digits + "+/",
        string.ascii_letters + string.digits + "-_",
        string.ascii_lowercase + string.digits,
        string.ascii_lowercase,
        string.ascii_uppercase + "234567",
        "0123456789abcdef",
        string.digits,
    ],
)
def test_a_random_token_is_no_placeholder(alphabet):
    chance = random.Random(alphabet)
    tokens = ("".join(chance.choices(alphabet, k=chance.randint(20, 88))) for _ in range(5_000))
    assert sum(map(is_placeholder, tokens)) < 2


@given(
    st.text("ab01Zé-", max_size=60) | st.text("abcdefgxxxxxxxx", max_size=50) | st.text(max_size=40),
    st.sampled_from([0.5, 2.5, 3.0, 3.5, 4.0, 4.5]),
)
def test_has_entropy_compares_the_bits_per_character(value, bits):
    assert has_entropy(value, bits) == (bits_per_character(value) >= bits)
