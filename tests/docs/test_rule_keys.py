"""The page of rules names every key of a rule file, and none that does not exist."""

import pytest
from pydantic import BaseModel

from outcrop.scanner.rules import check_spec, toml
from outcrop.scanner.rules.form_builder import FormTable
from tests.docs.pages import first_column, section


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("Keys of a file", toml._FileTable),
        ("Keys of a form", FormTable),
        ("Keys of a part", toml._CompanionTable),
        ("Keys of a check", check_spec.CheckSpec),
        ("Keys of an answer", check_spec.AnswerSpec),
        ("Keys of a capability", check_spec.CapabilitySpec),
        ("Keys of a list of labels", check_spec.LabelListSpec),
        ("Keys of a reply", check_spec.RecordedReply),
    ],
)
def test_the_table_of_keys_has_every_key_and_no_other(heading: str, model: type[BaseModel]) -> None:
    assert documented_keys(heading) == keys_of(model)


def test_the_table_of_rule_keys_has_every_key_and_no_other() -> None:
    assert documented_keys("Keys of a rule") == keys_of(toml._RuleTable) - keys_of(FormTable)


def documented_keys(heading: str) -> set[str]:
    """Return the keys in the table of a section; `[[rule.part]]` is the key `part`."""
    return {name.strip("[]").rpartition(".")[2] for name in first_column(section("rules.md", heading))}


def keys_of(model: type[BaseModel]) -> set[str]:
    """Return the keys of a table in a rule file."""
    return {str(field.alias or name) for name, field in model.model_fields.items()}
