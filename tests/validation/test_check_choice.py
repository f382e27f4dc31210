"""Choose the check of a credential by its form, its host and the mode, and recognize test-mode keys."""

from collections.abc import Iterator

import pytest

from outcrop.scanner.rules.model import RuleError
from outcrop.scanner.rules.toml import parse_rule_file
from outcrop.validation.engine import ValidationMode
from tests.support.checks import run_with_validator, write_rule
from tests.support.fake_https import FakeResponse, FakeServer, serve_https

OK = FakeResponse(200, {"Content-Type": "application/json"}, b'{"id": 1}')
OTHER_FORMS = """
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
def fake_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    hosts = ("api.acme.example", "api.slow.example")
    with serve_https(tmp_path_factory.mktemp("issuer"), hosts, lambda _: OK) as server:
        yield server


def write_rule_with_forms(folder):
    """Write a rule with checks for three forms of a key; the third has a reason instead of a request."""
    file = folder / "forms.toml"
    write_rule(folder)
    text = (folder / "acme.toml").read_text().replace("[rule.check]", '[[rule.check]]\nonly = "acme_[0-9]"')
    file.write_text(text + OTHER_FORMS)
    return parse_rule_file(file.read_text(), str(file))[0]


@pytest.mark.parametrize(
    ("secret", "sent", "status", "reason"),
    [
        ("acme_0123", [("/me", "X-Key")], "valid", "accepted"),
        ("acme_admin_0123", [("/admin", "X-Admin")], "valid", "an administrator's"),
        ("acme_once_0123", [], "unvalidated", "asking would use it up"),
        ("acme_zzz", [], "unvalidated", "there is no harmless way to check this form of the credential"),
    ],
)
def test_each_form_of_a_credential_has_its_own_check(fake_issuer, tmp_path, secret, sent, status, reason):
    fake_issuer.requests.clear()
    fake_issuer.respond = lambda _: OK
    verdict = run_with_validator(
        fake_issuer.egress,
        lambda validator: validator.check(write_rule_with_forms(tmp_path), secret, {}),
        ValidationMode.FULL,
    )
    assert (verdict.status, verdict.reason) == (status, reason)
    assert [
        (request.path, next(name for name in request.headers if name.startswith("X-")))
        for request in fake_issuer.requests
    ] == sent


def test_a_broken_form_pattern_is_reported_with_its_line(tmp_path):
    for broken in ('only = "(?=x)"', 'only = "("', "unasked = 7"):
        text = write_rule_with_forms(tmp_path) and (tmp_path / "forms.toml").read_text().replace(
            'only = "acme_once"', broken
        )
        with pytest.raises(RuleError, match=r"forms.toml:\d+: "):
            parse_rule_file(text, "forms.toml")


@pytest.mark.parametrize(
    ("secret", "parts", "settings", "after", "test_mode"),
    [
        ("acme_test_1", {}, 'test_mode = ["acme_test_"]', "", True),
        ("acme_live_1", {}, 'test_mode = ["acme_test_"]', "", False),
        ("acme_1", {"key_id": "id_test_1"}, 'test_mode = ["id_test_"]', "", True),
        ("acme_1", {"key_id": "id_live_1"}, 'test_mode = ["id_test_"]', "", False),
        ("acme_1", {}, "", "test_mode = true", True),
        ("acme_1", {}, "", "", False),
    ],
    ids=[
        "its prefix",
        "another prefix",
        "prefix of a companion",
        "another companion",
        "the response",
        "no sign of test mode",
    ],
)
def test_a_test_mode_key_is_recognized_by_its_prefix_a_companion_or_the_response(
    fake_issuer, tmp_path, secret, parts, settings, after, test_mode
):
    acme = write_rule(
        tmp_path,
        settings=f"{settings}\n[[rule.check.answer]]\njson = {{ livemode = false }}\n"
        f"result = 'valid'\nreason = 'accepted'\n{after}",
    )
    fake_issuer.respond = lambda _: FakeResponse(
        200, {"Content-Type": "application/json"}, b'{"id": 1, "livemode": false}'
    )
    verdict = run_with_validator(fake_issuer.egress, lambda validator: validator.check(acme, secret, parts))
    assert (verdict.status, verdict.test_mode) == ("valid", test_mode)


@pytest.mark.parametrize(
    ("mode", "host", "status", "contacted"),
    [
        (ValidationMode.SAFE, None, "valid", "api.acme.example"),
        (ValidationMode.SAFE, "api.acme.example", "valid", "api.acme.example"),
        (ValidationMode.SAFE, "api.slow.example", "unvalidated", None),
        (ValidationMode.SAFE, "api.acme.example.evil.example", "unvalidated", None),
        (ValidationMode.SAFE, "evilapi.acme.example", "unvalidated", None),
        (ValidationMode.FULL, "api.slow.example", "valid", "api.slow.example"),
    ],
)
def test_safe_mode_contacts_only_hosts_of_the_issuer(fake_issuer, tmp_path, mode, host, status, contacted):
    settings = 'given_host = true\nhosts = ["api.acme.example"]\notherwise = { host = "api.acme.example" }'
    acme = write_rule(tmp_path, url="https://{part.host}/me", settings=settings)
    fake_issuer.requests.clear()
    fake_issuer.respond = lambda _: OK
    parts = {"host": host} if host else {}
    verdict = run_with_validator(
        fake_issuer.egress, lambda validator: validator.check(acme, "acme_1", parts), mode
    )
    assert verdict.status == status
    assert [request.host for request in fake_issuer.requests] == ([contacted] if contacted else [])


@pytest.mark.parametrize("mode", [ValidationMode.SAFE, ValidationMode.FULL])
def test_a_check_without_given_host_contacts_only_hosts_of_the_issuer(fake_issuer, tmp_path, mode):
    acme = write_rule(tmp_path, url="https://{part.host}/me", settings='hosts = ["api.acme.example"]')
    fake_issuer.requests.clear()
    verdict = run_with_validator(
        fake_issuer.egress,
        lambda validator: validator.check(acme, "acme_1", {"host": "api.slow.example"}),
        mode,
    )
    assert (verdict.status, fake_issuer.requests) == ("unvalidated", [])
