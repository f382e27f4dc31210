"""Mask all credentials of a scan in the texts of all its findings."""

from outcrop.domain.secret import Secret
from outcrop.services.pipeline.masking import SecretMasker

PLAIN, ENCODED = "k8Zq2vLx9WtR4m7C", "pa/ss+wörd%40!!x"


def test_a_credential_in_a_path_is_masked_also_if_it_is_url_encoded() -> None:
    texts = [f"a/{PLAIN}/b", "https://example.com/pa%2Fss%2Bw%C3%B6rd%2540%21!x?q=1", "plain"]
    masker = SecretMasker([Secret(PLAIN), Secret(ENCODED, mask_all=True)], texts)
    assert [masker.mask(text) for text in texts] == [
        "a/k8********7C/b",
        "https://example.com/********?q=1",
        "plain",
    ]


def test_the_longer_of_two_credentials_is_masked_first() -> None:
    text = f"x {PLAIN}{PLAIN}"
    assert SecretMasker([Secret(PLAIN), Secret(PLAIN + PLAIN)], [text]).mask(text) == "x k8Zq********4m7C"


def test_a_credential_that_is_as_short_as_a_word_is_not_masked() -> None:
    assert SecretMasker([Secret("secret")], ["a/secret/b"]).mask("a/secret/b") == "a/secret/b"
