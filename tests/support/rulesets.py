"""The compiled rules, once for each test process, and small helpers around them."""

import json
import os
import random
import string
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.load import compile_ruleset, load_ruleset, save_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.patterns.checksums import crc32_base62
from outcrop.scanner.rules.cache_format import LazyRules
from outcrop.scanner.rules.model import BUILT_IN_RULES
from outcrop.scanner.rules.toml import load_rule_files, parse_rule_file
from outcrop.sources.workspace import cache_folder

BASE62 = string.ascii_letters + string.digits
BASE64 = BASE62 + "+/"


@cache
def ruleset() -> RuleSet:
    """Return the built-in rules with their examples, which the cache of compiled rules does not have.

    The first process of the run reads the rule files and writes the examples for the others.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "examples.json"
    with (folder / "compiling").open("w") as lock:
        flock(lock, LOCK_EX)
        made = load_ruleset(cache=folder)
        if not file.exists():
            read = (
                made.rules if made.rules[0].examples else load_rule_files([BUILT_IN_RULES])
            )  # unless a command has put them into the cache
            file.write_text(json.dumps([(rule.examples, rule.counterexamples) for rule in read]))
    given = json.loads(file.read_text())
    rules = [
        rule._replace(examples=tuple(examples), counterexamples=tuple(others))
        for rule, (examples, others) in zip(made.rules, given, strict=True)
    ]
    return RuleSet(LazyRules.from_rules(rules), made.version, made.database)


def cached_in(home: Path) -> Path:
    """Put the compiled rules into the cache of commands (XDG_CACHE_HOME), which then do not compile them."""
    save_ruleset(home / "outcrop", ruleset())
    return home


def own_rules(text: str, name: str = "own.toml") -> RuleSet:
    """Compile the rules of one text, and nothing else."""
    return compile_ruleset(parse_rule_file(text, name))


def drawn(alphabet: str, length: int, seed: object = None) -> str:
    chance = random.Random(str(seed)) if seed is not None else random.Random(os.urandom(8))
    return "".join(chance.choice(alphabet) for _ in range(length))


def github_token(seed: object = None) -> str:
    """Make up a token with a right checksum."""
    body = drawn(BASE62, 30, seed)
    return f"ghp_{body}{crc32_base62(body)}"


def values(
    data: bytes | str, floor: Confidence = Confidence.MEDIUM, rules: RuleSet | None = None
) -> list[str]:
    return [reveal(hit.secret) for hit in hits(data, floor, rules)]


def hits(data: bytes | str, floor: Confidence = Confidence.MEDIUM, rules: RuleSet | None = None) -> list[Hit]:
    return find(rules or ruleset(), data.encode() if isinstance(data, str) else data, floor)
