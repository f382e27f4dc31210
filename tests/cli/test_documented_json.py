"""`--json` prints the fields that docs/commands.md names."""

import json
import re
from typing import Any

import pytest

from tests.cli.conftest import Outcrop
from tests.docs import inventory
from tests.docs.pages import section
from tests.support.factories import make_line
from tests.support.rulesets import compiled_in, github_token

# Commands in an order in which each has what it needs; {name} is a value of an earlier output.
STEPS = (
    "account create acme --plan growth --email security@acme.example",
    "account list",
    "account set-plan acme enterprise",
    "user create jo@acme.example --account acme --role owner",
    "user invite al@acme.example --account acme",
    "user list",
    "user reset-password jo@acme.example",
    "user totp-off jo@acme.example",
    "key create --account acme --name ci",
    "key list --account acme",
    "key revoke {key create}",
    "target add --account acme github:acme",
    "target list --account acme",
    "target remove --account acme {target add}",
    "import --account acme findings.jsonl",
    "webhook set --account acme https://hooks.acme.example/outcrop",
    "webhook show --account acme",
    "webhook test --account acme",
    "webhook log --account acme",
    "webhook remove --account acme",
    "hook create --account acme github",
    "hook list --account acme",
    "hook remove {hook create}",
    "suppression add --account acme --path docs/* --reason examples",
    "suppression list --account acme",
    "suppression remove --account acme {suppression add}",
    "assignment add --account acme --repo acme/* --assignee jo@acme.example",
    "assignment list --account acme",
    "assignment remove --account acme {assignment add}",
    "audit --account acme",
    "rules list",
    "rules check own.toml",
    "rules test shop",
    "rules compile --output compiled",
    "validate --type github_pat_classic",
    "doctor",
    "settings",
    "migrate",
    "backup all.backup",
    "secrets keep active",
    "secrets rotate --new-key-stdin",
    "user remove jo@acme.example",
    "account delete acme",
)
# These print a record of the API, whose fields tests/docs compares, or need another database.
ELSEWHERE = {"scan", "finding", "target run", "restore", "report", "webhook again"}
# The fields of `why` are compared by tests/cli/test_why.py; those of `account set-sla` are severities.
ELSEWHERE |= {"why", "account set-sla"}
OWN_RULE = """issuer = "Acme"
[[rule]]
id = "acme_key"
value = "acme_{{base62 30}}"
"""


@pytest.fixture
def printed(outcrop: Outcrop, tmp_path, monkeypatch) -> dict[str, Any]:
    """Run all steps; return what each printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "findings.jsonl").write_text(json.dumps(make_line()) + "\n")
    (tmp_path / "own.toml").write_text(OWN_RULE)
    (tmp_path / "shop").mkdir()
    compiled_in(tmp_path / "compiled")
    (tmp_path / "shop/settings.py").write_text(f'TOKEN = "{github_token()}"\n')
    results: dict[str, Any] = {}
    for step in STEPS:
        words = re.sub(r"\{([^}]+)\}", lambda match: results[match[1]]["id"], step).split()
        ran = outcrop(*words, "--json", stdin=github_token(), OUTCROP_VALIDATE="off")
        name = " ".join(words[:2]) if " ".join(words[:2]) in inventory.commands() else words[0]
        results[step if name in results else name] = ran.json
    return results


def test_every_command_prints_the_fields_that_its_section_names(printed, subtests):
    commands = {
        step: step if step in inventory.commands() else " ".join(step.split()[:2]) for step in printed
    }
    without_json = {"serve", "worker", "demo", "export", "completion"}
    # These need a server or a repository; tests of their own run them.
    elsewhere = ELSEWHERE | {
        n for n in inventory.commands() if n.startswith(("findings ", "git-hook ", "incidents "))
    }
    assert {*commands.values()} | elsewhere == set(inventory.commands()) - without_json
    for step, output in printed.items():
        with subtests.test(step):
            assert output != []
            assert fields_of(output) in documented(commands[step])


def fields_of(output: Any) -> set[str]:
    """Return the fields of an object, or of the first object of a list."""
    return set(output[0] if isinstance(output, list) else output)


def documented(command: str) -> list[set[str]]:
    """Return the fields of every object that the section of a command shows."""
    text = section("commands.md", f"`outcrop {command}`")
    if "as `outcrop target add` prints" in text:
        text = section("commands.md", "`outcrop target add`")
    if "of `suppression add`" in text:
        text = section("commands.md", "`outcrop suppression add`")
    if "of `assignment add`" in text:
        text = section("commands.md", "`outcrop assignment add`")
    if "deliver" in text and '{"' not in text:
        return [delivery_fields()]
    return [set(re.findall(r'"(\w+)"', shape)) for shape in re.findall(r'\{("[^}]*)\}', text)]


def delivery_fields() -> set[str]:
    """Return the fields of a delivery, as the page of webhooks lists them."""
    table = section("webhooks.md", "The log of deliveries")
    return {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
