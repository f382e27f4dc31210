"""Forms of one credential that are asked about in different ways, and keys that open nothing but made-up data."""

from collections.abc import Iterator

import pytest

from outcrop.scanner.rules.toml import RuleError, parse_rule_file
from outcrop.validation.engine import ValidationMode
from tests.support.checks import run_with_validator, write_rule
from tests.support.fake_https import FakeResponse, FakeServer, serve_https

OK = FakeResponse(200, {"Content-Type": "application/json"}, b'{"id": 1}')
SECOND = """
[[rule.check]]
only = "acme_admin"
url = "https://api.slow.example/admin"
headers = { X-Admin = "{secret}" }
[[rule.check.answer]]
status = [200]
result = "valid"
reason = "an administrator's"
[[rule.check]]
only = "acme_once"
unasked = "asking would use it up"
"""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    hosts = ("api.acme.example", "api.slow.example")
    with serve_https(tmp_path_factory.mktemp("issuer"), hosts, lambda _: OK) as server:
        yield server


def forms(folder):
    """Write a rule with three checks: for one form, for another, and for a third that says why there is none."""
    file = folder / "forms.toml"
    write_rule(folder)
    text = (folder / "acme.toml").read_text().replace("[rule.check]", '[[rule.check]]\nonly = "acme_[0-9]"')
    file.write_text(text + SECOND)
    return parse_rule_file(file.read_text(), str(file))[0]


@pytest.mark.parametrize(
    ("secret", "asked", "status", "reason"),
    [
        ("acme_0123", [("/me", "X-Key")], "valid", "accepted"),
        ("acme_admin_0123", [("/admin", "X-Admin")], "valid", "an administrator's"),
        ("acme_once_0123", [], "unvalidated", "asking would use it up"),
        ("acme_zzz", [], "unvalidated", "there is no harmless way to check this form of the credential"),
    ],
)
def test_each_form_is_asked_about_in_its_own_way(stand_in, tmp_path, secret, asked, status, reason):
    stand_in.requests.clear()
    stand_in.respond = lambda _: OK
    verdict = run_with_validator(
        stand_in.egress, lambda validator: validator.check(forms(tmp_path), secret, {}), ValidationMode.FULL
    )
    assert (verdict.status, verdict.reason) == (status, reason)
    assert [
        (one.path, next(name for name in one.headers if name.startswith("X-"))) for one in stand_in.requests
    ] == asked


def test_a_form_that_cannot_be_matched_is_refused_with_its_place(tmp_path):
    for bad in ('only = "(?=x)"', 'only = "("', "unasked = 7"):
        text = forms(tmp_path) and (tmp_path / "forms.toml").read_text().replace('only = "acme_once"', bad)
        with pytest.raises(RuleError, match=r"forms.toml:\d+: "):
            parse_rule_file(text, "forms.toml")


@pytest.mark.parametrize(
    ("secret", "parts", "more", "after", "told"),
    [
        ("acme_test_1", {}, 'test_mode = ["acme_test_"]', "", True),
        ("acme_live_1", {}, 'test_mode = ["acme_test_"]', "", False),
        ("acme_1", {"key_id": "id_test_1"}, 'test_mode = ["id_test_"]', "", True),
        ("acme_1", {"key_id": "id_live_1"}, 'test_mode = ["id_test_"]', "", False),
        ("acme_1", {}, "", "test_mode = true", True),
        ("acme_1", {}, "", "", False),
    ],
    ids=[
        "its beginning",
        "no such beginning",
        "a companion's",
        "no such companion",
        "the answer says so",
        "nobody says so",
    ],
)
def test_a_key_that_opens_made_up_data_only_is_told_by_itself_a_companion_or_the_answer(
    stand_in, tmp_path, secret, parts, more, after, told
):
    acme = write_rule(
        tmp_path,
        settings=f"{more}\n[[rule.check.answer]]\njson = {{ livemode = false }}\nresult = 'valid'\nreason = 'accepted'\n{after}",
    )
    stand_in.respond = lambda _: FakeResponse(
        200, {"Content-Type": "application/json"}, b'{"id": 1, "livemode": false}'
    )
    verdict = run_with_validator(stand_in.egress, lambda validator: validator.check(acme, secret, parts))
    assert (verdict.status, verdict.test_mode) == ("valid", told)


@pytest.mark.parametrize(
    ("mode", "host", "status", "asked"),
    [
        (ValidationMode.SAFE, None, "valid", "api.acme.example"),
        (ValidationMode.SAFE, "api.acme.example", "valid", "api.acme.example"),
        (ValidationMode.SAFE, "api.slow.example", "unvalidated", None),
        (ValidationMode.SAFE, "api.acme.example.evil.example", "unvalidated", None),
        (ValidationMode.SAFE, "evilapi.acme.example", "unvalidated", None),
        (ValidationMode.FULL, "api.slow.example", "valid", "api.slow.example"),
    ],
)
def test_a_host_of_the_issuers_own_is_safe_and_anybody_elses_is_not(
    stand_in, tmp_path, mode, host, status, asked
):
    more = 'given_host = true\nhosts = ["api.acme.example"]\notherwise = { host = "api.acme.example" }'
    acme = write_rule(tmp_path, url="https://{part.host}/me", settings=more)
    stand_in.requests.clear()
    stand_in.respond = lambda _: OK
    parts = {"host": host} if host else {}
    verdict = run_with_validator(
        stand_in.egress, lambda validator: validator.check(acme, "acme_1", parts), mode
    )
    assert verdict.status == status
    assert [one.host for one in stand_in.requests] == ([asked] if asked else [])


@pytest.mark.parametrize("mode", [ValidationMode.SAFE, ValidationMode.FULL])
def test_where_only_the_issuers_own_hosts_are_named_no_other_is_ever_asked(stand_in, tmp_path, mode):
    acme = write_rule(tmp_path, url="https://{part.host}/me", settings='hosts = ["api.acme.example"]')
    stand_in.requests.clear()
    verdict = run_with_validator(
        stand_in.egress, lambda validator: validator.check(acme, "acme_1", {"host": "api.slow.example"}), mode
    )
    assert (verdict.status, stand_in.requests) == ("unvalidated", [])
