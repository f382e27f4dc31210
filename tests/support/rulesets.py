"""The compiled rules, once for each test process, and small helpers around them."""

import hashlib
import json
import os
import random
import shutil
import string
from contextlib import suppress
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path

import pytest

from outcrop import scanner
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine import load
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.load import compile_ruleset, load_ruleset, save_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.patterns.checksums import crc32_base62
from outcrop.scanner.rules.cache_format import LazyRules
from outcrop.scanner.rules.model import BUILT_IN_RULES
from outcrop.scanner.rules.toml import load_rule_files, parse_rule_file
from outcrop.sources.workspace import cache_folder

SCANNER = Path(scanner.__file__).parent
KEPT_RULES = Path(__file__).parents[2] / ".pytest_cache" / "compiled-rules"
BASE62 = string.ascii_letters + string.digits
BASE64 = BASE62 + "+/"


@cache
def ruleset() -> RuleSet:
    """Return the built-in rules with their examples, which the cache of compiled rules does not have.

    The first process of the run compiles the rules, unless an earlier run has compiled the same rules with
    the same code; the others wait for it.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    examples = folder / "examples.json"
    with (folder / "compiling").open("w") as lock:
        flock(lock, LOCK_EX)
        if not examples.exists():
            _fill_cache(folder, examples)
        made = load_ruleset(cache=folder)
    rules = [
        rule._replace(examples=tuple(given), counterexamples=tuple(others))
        for rule, (given, others) in zip(made.rules, json.loads(examples.read_text()), strict=True)
    ]
    return RuleSet(LazyRules.from_rules(rules), made.version, made.database)


def _fill_cache(folder: Path, examples: Path) -> None:
    """Write the compiled rules to `folder`, and their examples to the file `examples`.

    They are kept for later runs, under a hash of all files that they are made from.
    """
    digest = hashlib.sha256()
    for path in sorted([*SCANNER.rglob("*.py"), *BUILT_IN_RULES.rglob("*.toml")]):
        digest.update(f"{path} {path.stat().st_size}\n".encode() + path.read_bytes())
    kept = KEPT_RULES / digest.hexdigest()
    if (kept / examples.name).exists():
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        return
    made = load_ruleset(cache=folder)
    # A command that has compiled the rules before has not kept their examples.
    rules = made.rules if made.rules[0].examples else load_rule_files([BUILT_IN_RULES])
    examples.write_text(json.dumps([(rule.examples, rule.counterexamples) for rule in rules]))
    with suppress(OSError):  # another run may do the same
        shutil.rmtree(KEPT_RULES, ignore_errors=True)
        unfinished = KEPT_RULES / f"unfinished-{os.getpid()}"
        shutil.copytree(folder, unfinished)
        unfinished.rename(kept)


def replace_built_in_rules(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make a file or folder the built-in rules: compiling all of them beside others takes seconds each time.

    A patch, and no argument: every scan of a user has all built-in rules.
    """
    monkeypatch.setattr(load, "BUILT_IN_RULES", path)


@pytest.fixture
def only_github_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_built_in_rules(monkeypatch, BUILT_IN_RULES / "github.toml")


def cached_in(home: Path) -> Path:
    """Put the compiled rules into the cache of commands (XDG_CACHE_HOME), which then do not compile them."""
    save_ruleset(home / "outcrop", ruleset())
    return home


def compiled_in(folder: Path) -> None:
    """Put the compiled rules into a folder of `outcrop rules compile`, which then does not compile them."""
    save_ruleset(folder, ruleset())


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
