"""Every built-in rule has advice for a leaked credential, and own rule files are searched too."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from outcrop.scanner.rules.advice import find_advice
from outcrop.scanner.rules.model import Rule
from tests.support.rulesets import ruleset


def has_good_advice(rule: Rule) -> bool:
    """Whether a rule has four steps of 20 to 300 characters, and only https links that name the issuer."""
    file = Path(rule.origin.partition(":")[0])  # given first: otherwise all files are searched for each rule
    advice = find_advice(rule.id, rule.secret_type, [file])
    links = all(rule.issuer in label and urlsplit(url).scheme == "https" for label, url in advice.links)
    return links and len(advice.steps) == 4 and all(20 <= len(step) <= 300 for step in advice.steps)


def test_every_rule_has_steps_and_good_links() -> None:
    assert [rule.id for rule in ruleset().rules if not has_good_advice(rule)] == []


def test_the_advice_of_a_rule_replaces_that_of_its_file() -> None:
    general, own = (
        find_advice("github_pat_classic", "github"),
        find_advice("github_app_installation_token", "github"),
    )
    assert general.links[0][1] == "https://github.com/settings/tokens"
    assert own.links[0][1] != general.links[0][1]
    assert "within an hour" in own.steps[0]
    assert (
        find_advice("cloudflare_global_key", "cloudflare_global").links
        == find_advice("cloudflare_api_token", "cloudflare").links
    )


@pytest.mark.parametrize(
    ("rule", "kind", "words"),
    [
        ("postgres_uri", "postgres", "database user"),
        ("pgpass_password", "pgpass_password", "database user"),
        ("private_key", "private_key", "key pair"),
        ("jwt", "jwt", "session"),
        ("generic_password", "generic", "Change this password"),
        (None, "some_password", "Change this password"),
        (None, "unheard_of", "Find out what it gives access to"),
        ("rule_that_is_gone", "unheard_of", "Find out what it gives access to"),
        (None, "ssh_private_key", "key pair"),
    ],
)
def test_a_type_that_no_issuer_can_revoke_has_advice_of_its_own(
    rule: str | None, kind: str, words: str
) -> None:
    advice = find_advice(rule, kind)
    assert words in advice.steps[0]
    assert advice.links == ()


def test_a_finding_without_a_rule_has_the_advice_of_its_type() -> None:
    assert find_advice(None, "stripe").links == find_advice("stripe_secret_key", "stripe").links != ()


def test_own_rules_have_precedence_and_wrong_files_are_skipped(tmp_path: Path) -> None:
    rule = '\n[[rule]]\nid = "acme"\nname = "Acme"\nsecret_type = "acme"\npattern = \'acme_[a-z]{9}\'\n'
    (tmp_path / "a.toml").write_text('issuer = "Acme"\nrevoke = "https://acme.example/keys"\n' + rule)
    (tmp_path / "b.toml").write_text('"acme" [[')
    advice = find_advice("acme", "acme", [tmp_path / "missing", tmp_path])
    assert advice.links == (("Revoke or rotate it at Acme", "https://acme.example/keys"),)
    assert advice.steps[0] == "Revoke it at Acme and create a new one with no more permissions than it needs."


def test_no_rule_is_compiled_and_hyperscan_is_not_imported() -> None:
    program = (
        "import sys, outcrop.scanner.rules.advice as advice; "
        "advice.find_advice('stripe_secret_key', 'stripe'); sys.exit('hyperscan' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0
