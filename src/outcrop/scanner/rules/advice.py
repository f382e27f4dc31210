"""What to do about a leaked credential: what its rule's file says, else what holds for its kind. Nothing is compiled for it."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from outcrop.scanner.rules.model import BUILT_IN_RULES, RuleError, list_rule_files

# What a rule file may say, of all its rules or of one.
Revoke = Annotated[str, Field(pattern=r"^https://[^\s/@\"<>]+/[^\s@\"<>]*$", max_length=300)]
Words = Annotated[str, Field(min_length=20, max_length=300, pattern=r"^[^\x00-\x1f]+$")]

_DATABASES = {"postgres", "pgpass_password", "mysql", "mongodb", "redis", "amqp", "sqlserver"}
_LAST = (
    "Taking it out of the source is not enough: it stays in the history, in forks and in caches. "
    "Resolve this finding when the old one no longer works."
)


@dataclass(frozen=True, slots=True)
class Advice:
    steps: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()  # a label, and an https address


@dataclass(frozen=True, slots=True)
class _Said:
    """What a file says of one rule."""

    issuer: str
    secret_type: str
    password: bool
    revoke: str | None
    advice: str | None


def find_advice(rule_id: str | None, secret_type: str, own: Sequence[Path] = ()) -> Advice:
    """Give what to do about a credential that a rule has found, or of whose type something is known; `own` are an operator's rules."""
    return _advice_for(rule_id, secret_type, (*own, BUILT_IN_RULES))


@lru_cache(maxsize=1_024)
def _advice_for(rule_id: str | None, secret_type: str, paths: tuple[Path, ...]) -> Advice:
    said = _said(rule_id, secret_type, paths)
    # What nobody issues has a kind, but no issuer to turn to.
    issuer = said.issuer if said is not None and (said.revoke or said.advice) else None
    first = (
        said.advice
        if said is not None and said.advice
        else _of_kind(secret_type, issuer, password=said is not None and said.password)
    )
    log = f"{issuer}'s logs" if issuer else "the logs of what it opens"
    steps = (
        first,
        "Bring the new one to everything that uses it, from a secret store and not from the source.",
        f"Look through {log} for uses that were not yours, from the day it was first exposed.",
        _LAST,
    )
    links = (
        ((f"Revoke or rotate it at {said.issuer}", said.revoke),) if said is not None and said.revoke else ()
    )
    return Advice(steps, links)


def _of_kind(secret_type: str, issuer: str | None, *, password: bool) -> str:
    """Say what holds for a kind of credential, where its file says nothing."""
    kind = secret_type.lower()
    if kind in _DATABASES:
        return "Give the database user a new password, or make a new user and drop this one, and let only known hosts connect."
    if "private_key" in kind or "ssh" in kind:
        return (
            "Make a new key pair and take the public key that belongs to this one out of every authorised list; "
            "have a certificate that was issued for it revoked."
        )
    if "jwt" in kind or "json_web_token" in kind:
        return "End the session it stands for. If it does not expire soon, replace the key that it is signed with, which ends all others too."
    if issuer is not None:
        return f"Revoke it at {issuer} and make a new one that opens no more than is needed."
    if password or "password" in kind or kind in {"generic", "basic_auth"}:
        return (
            "Change this password wherever it is used: find out first what it opens, by the names around it."
        )
    return (
        "Find out what it opens, by the names around it, have whoever issued it revoke it, and get a new one."
    )


def _said(rule_id: str | None, secret_type: str, paths: Sequence[Path]) -> _Said | None:
    of_type = None
    for raw, file in _rules_with(rule_id, secret_type, paths):
        said = _Said(
            str(file.get("issuer", "")),
            str(raw.get("secret_type", "")),
            raw.get("password") is True,
            raw.get("revoke", file.get("revoke")),
            raw.get("advice", file.get("advice")),
        )
        if rule_id is not None and raw.get("id") == rule_id:
            return said
        of_type = of_type or (said if said.secret_type == secret_type else None)
    return of_type


def _rules_with(
    rule_id: str | None, secret_type: str, paths: Sequence[Path]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Give the rules of the files that name the rule or the type, each with its file; others are not even parsed."""
    names = [f'"{name}"'.encode() for name in (rule_id, secret_type) if name]
    for path in paths:
        try:
            files = list_rule_files(path)
        except RuleError:
            continue
        for file in files:
            try:
                text = Path(file).read_bytes()
                if any(name in text for name in names):
                    data = tomllib.loads(text.decode())
                    yield from ((raw, data) for raw in data["rule"])
            except (
                OSError,
                ValueError,
                KeyError,
                TypeError,
            ):  # a file that cannot be read is the loader's business to tell
                continue
