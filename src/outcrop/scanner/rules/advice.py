"""Find the advice for a leaked credential: what its rule file says, or else what holds for its type.

Rule files are searched as text and nothing is compiled, so that a page of the portal shows the advice at
once.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from outcrop.scanner.rules.model import BUILT_IN_RULES, RuleError, list_rule_files

# The keys `revoke` and `advice` of a rule file and of a rule.
RevokeUrl = Annotated[str, Field(pattern=r"^https://[^\s/@\"<>]+/[^\s@\"<>]*$", max_length=300)]
AdviceText = Annotated[str, Field(min_length=20, max_length=300, pattern=r"^[^\x00-\x1f]+$")]

_DATABASE_TYPES = {"postgres", "pgpass_password", "mysql", "mongodb", "redis", "amqp", "sqlserver"}
_PASSWORD_TYPES = {"generic", "basic_auth"}
_LAST_STEP = (
    "Removing it from the source is not enough: it stays in the history, in forks and in caches. "
    "Resolve this finding when the old credential no longer works."
)


@dataclass(frozen=True, slots=True)
class Advice:
    """The steps after a leak, and links to pages of the issuer."""

    steps: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()  # (label, https address)


@dataclass(frozen=True, slots=True)
class _RuleAdvice:
    """The keys of a rule file that matter for the advice about one rule."""

    issuer: str
    secret_type: str
    password: bool
    revoke: str | None
    advice: str | None


def find_advice(rule_id: str | None, secret_type: str, own_rules: Sequence[Path] = ()) -> Advice:
    """Return the advice of the rule with this id, or of the first rule of this type, or general advice.

    `own_rules` are files and folders of the operator's own rules; they have precedence over the built-in
    ones. The result is cached: later changes of the files are not seen.
    """
    return _find_advice(rule_id, secret_type, (*own_rules, BUILT_IN_RULES))


@lru_cache(maxsize=1_024)
def _find_advice(rule_id: str | None, secret_type: str, paths: tuple[Path, ...]) -> Advice:
    """Return the advice from the rule files of these paths, or general advice for the type.

    The result is cached.
    """
    rule = _find_rule_advice(rule_id, secret_type, paths)
    if rule is None:
        return Advice(_make_steps(_advice_for_type(secret_type, None, is_password=False), None))
    # A rule without both keys is for credentials that no issuer can revoke, such as passwords.
    issuer = rule.issuer if rule.revoke or rule.advice else None
    first_step = rule.advice or _advice_for_type(secret_type, issuer, is_password=rule.password)
    links = ((f"Revoke or rotate it at {rule.issuer}", rule.revoke),) if rule.revoke else ()
    return Advice(_make_steps(first_step, issuer), links)


def _make_steps(first_step: str, issuer: str | None) -> tuple[str, ...]:
    """Return the first step and the steps that are the same for every credential.

    They name the logs of `issuer`; with None, those of the systems that the credential gives access to.
    """
    logs = f"{issuer}'s logs" if issuer else "the logs of the systems it gives access to"
    return (
        first_step,
        "Deploy the new one to everything that uses it, from a secret store and not from the source.",
        f"Search {logs} for uses that were not yours, from the day it was first exposed.",
        _LAST_STEP,
    )


def _advice_for_type(secret_type: str, issuer: str | None, *, is_password: bool) -> str:
    """Return the first step for a type of credential whose rule file has no advice.

    `issuer` is None if no issuer can revoke the credential, or it is not known. `is_password` says that the
    rule finds passwords.
    """
    kind = secret_type.lower()
    if kind in _DATABASE_TYPES:
        return (
            "Give the database user a new password, or create a new user and drop this one. "
            "Allow connections from known hosts only."
        )
    if "private_key" in kind or "ssh" in kind:
        return (
            "Create a new key pair and remove the old public key from every list of authorized keys. "
            "If a certificate was issued for the old key, have it revoked."
        )
    if "jwt" in kind or "json_web_token" in kind:
        return (
            "End the session that it belongs to. If it does not expire soon, replace the key that signs it, "
            "which ends all other sessions too."
        )
    if issuer is not None:
        return f"Revoke it at {issuer} and create a new one with no more permissions than it needs."
    if is_password or "password" in kind or kind in _PASSWORD_TYPES:
        return "Change this password wherever it is used. The names around it help to find out where."
    return (
        "Find out what it gives access to (the names around it help), have its issuer revoke it, "
        "and get a new one."
    )


def _find_rule_advice(rule_id: str | None, secret_type: str, paths: Sequence[Path]) -> _RuleAdvice | None:
    """Return the keys of the rule with this id, or else of the first rule of this type; None without both."""
    of_type = None
    for rule, file in _read_candidate_rules(rule_id, secret_type, paths):
        found = _RuleAdvice(
            str(file.get("issuer", "")),
            str(rule.get("secret_type", "")),
            rule.get("password") is True,
            rule.get("revoke", file.get("revoke")),
            rule.get("advice", file.get("advice")),
        )
        if rule_id is not None and rule.get("id") == rule_id:
            return found
        of_type = of_type or (found if found.secret_type == secret_type else None)
    return of_type


def _read_candidate_rules(
    rule_id: str | None, secret_type: str, paths: Sequence[Path]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the tables of rule and file for all rules in files that contain the id or the type in quotes.

    Other files are not parsed. Files that cannot be read are skipped: the loader reports them.
    """
    quoted = [f'"{name}"'.encode() for name in (rule_id, secret_type) if name]
    for path in paths:
        try:
            files = list_rule_files(path)
        except RuleError:
            continue
        for file in files:
            try:
                text = Path(file).read_bytes()
                if any(name in text for name in quoted):
                    data = tomllib.loads(text.decode())
                    yield from ((rule, data) for rule in data["rule"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
