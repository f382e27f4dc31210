"""Mask all credentials of a scan in the texts of all its findings."""

from outcrop.domain.account import Account
from outcrop.domain.secret import Secret
from outcrop.services.pipeline.masking import SecretMasker
from tests.support.pipeline import Pipeline, owner_spec, token

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


def test_a_token_that_is_only_in_a_git_path_is_stored_nowhere(pipeline: Pipeline, account: Account) -> None:
    only_in_path, owner = token("only in the path"), pipeline.add_owner()
    pipeline.add_repository(f"{owner}/shop", {f"{only_in_path}/a.txt": f"x\n{token('content')}\n"})
    for _ in range(2):  # the second scan finds the place again by its unmasked path
        run = pipeline.scan(account, owner_spec(owner))
    assert (run.findings_new, run.findings_seen) == (0, 1)
    finding = pipeline.finding(account)
    assert finding["file_path"] == f"{Secret(only_in_path).masked()}/a.txt"
    assert only_in_path not in str(finding)
    tables = pipeline.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for (table,) in tables:
        rows = pipeline.sql(f"SELECT t::text FROM {table} t")
        for (row,) in rows:
            assert only_in_path not in row, table
            assert only_in_path.encode().hex() not in row, table
