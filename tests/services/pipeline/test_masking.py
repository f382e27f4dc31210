"""Every credential of a look is masked in the texts around all of them."""

from outcrop.domain.secret import Secret
from outcrop.services.pipeline.masking import SecretMasker

ONE, TWO = "k8Zq2vLx9WtR4m7C", "pa/ss+wörd%40!!x"


def test_a_credential_in_the_path_of_another_is_masked_however_it_is_written() -> None:
    texts = [f"a/{ONE}/b", "https://example.com/pa%2Fss%2Bw%C3%B6rd%2540%21!x?q=1", "plain"]
    masker = SecretMasker([Secret(ONE), Secret(TWO, mask_all=True)], texts)
    assert [masker.mask(text) for text in texts] == [
        "a/k8********7C/b",
        "https://example.com/********?q=1",
        "plain",
    ]


def test_the_longer_of_two_is_masked_first() -> None:
    text = f"x {ONE}{ONE}"
    assert SecretMasker([Secret(ONE), Secret(ONE + ONE)], [text]).mask(text) == "x k8Zq********4m7C"


def test_what_is_too_short_to_be_told_from_a_word_is_left() -> None:
    assert SecretMasker([Secret("secret")], ["a/secret/b"]).mask("a/secret/b") == "a/secret/b"
