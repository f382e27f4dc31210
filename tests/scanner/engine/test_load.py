"""Test that compiled rules come back from the cache unchanged, and that a damaged cache is only slower."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outcrop.scanner.engine.load import (
    _hash_contents,
    compile_ruleset,
    load_compiled,
    load_ruleset,
    read_rules,
    save_ruleset,
)
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import find_trigger_matches
from outcrop.scanner.rules.cache_format import _parse_rule
from outcrop.scanner.rules.model import RuleError
from outcrop.scanner.rules.toml import load_rule_files
from tests.support.calls import RecordedCall, recorded_calls
from tests.support.rulesets import cached_in, github_token, ruleset, values

OWN = (
    "issuer = 'Acme'\n[[rule]]\nid = 'acme'\nname = 'Acme'\nsecret_type = 'acme'\n"
    "pattern = 'acme_[0-9a-f]{16}'\n"
)
TEXT = f"token = acme_0f1e9d3c7b5a2846 {github_token(1)}\n"
ACME = ["acme_0f1e9d3c7b5a2846"]


@pytest.fixture
def compiled() -> Iterator[list[RecordedCall]]:
    """Yield a list that gets every compilation of a rule set."""
    with recorded_calls(compile_ruleset) as calls:
        yield calls


@pytest.fixture
def own(tmp_path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


def load_own(own: Path, cache: Path) -> RuleSet:
    """Load the rules of one file, without the built-in rules."""
    return load_ruleset([own], built_in=False, cache=cache)


def test_rules_are_compiled_once_and_then_come_from_the_cache(own, tmp_path, compiled):
    first = load_own(own, tmp_path / "cache")
    second = load_own(own, tmp_path / "cache")
    assert len(compiled) == 1
    assert tuple(second.rules) == tuple(rule.without_examples() for rule in first.rules)
    assert second.version == first.version
    assert values(TEXT, rules=second) == values(TEXT, rules=first) == ACME


def test_cached_rules_are_equal_and_no_rule_is_parsed_before_it_is_used(tmp_path):
    cached_in(tmp_path)
    with recorded_calls(_parse_rule) as parsed:
        cached = load_compiled(tmp_path / "outcrop", ruleset().version)
    assert not parsed
    assert cached is not None
    assert tuple(cached.rules) == tuple(rule.without_examples() for rule in ruleset().rules)
    assert cached.trigger_count == ruleset().trigger_count
    for number in range(cached.trigger_count):
        assert [form for _, form in cached.forms[number]] == [form for _, form in ruleset().forms[number]]
    assert values(TEXT, rules=cached) == values(TEXT)
    assert not any(rule.examples or rule.counterexamples for rule in cached.rules)  # no scan needs them


DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "rubbish": lambda content: b"rubbish" * 100,
    "another type": lambda content: b'{"a": 1}',
    "rules with other fields": lambda content: b'[{"id": "x", "forms": []}]',
    "rules that are shorter": lambda content: b'[["x"]]',
    "a rule less": lambda content: content.rpartition(b"\n[")[0],
    "cut at its end": lambda content: content[:-1],
    "another character in the middle": lambda content: (
        content[: len(content) // 2] + b"~" + content[len(content) // 2 + 1 :]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["json", "db"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_cache_file_is_replaced(own, tmp_path, compiled, suffix, damage):
    load_own(own, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob(f"*.{suffix}")
    file.write_bytes(damage(file.read_bytes()))
    assert values(TEXT, rules=load_own(own, tmp_path / "cache")) == ACME
    assert len(compiled) == 2
    assert values(TEXT, rules=load_own(own, tmp_path / "cache")) == ACME
    assert len(compiled) == 2


def test_changed_byte_in_the_cached_database_is_noticed(own, tmp_path, compiled):
    load_own(own, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("*.db")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x55
    file.write_bytes(content)
    assert values(TEXT, rules=load_own(own, tmp_path / "cache")) == ACME
    assert len(compiled) == 2


def test_unwritable_cache_is_no_error(own, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert values(TEXT, rules=load_own(own, tmp_path / "file")) == ACME
    assert values(TEXT, rules=load_own(own, tmp_path / "file" / "below")) == ACME
    assert values(TEXT, rules=load_own(own, Path("/proc/none"))) == ACME


def test_changed_rule_file_is_compiled_again(own, tmp_path, compiled):
    first = load_own(own, tmp_path / "cache")
    own.write_text(OWN.replace("acme_[", "corp_["))
    second = load_own(own, tmp_path / "cache")
    assert first.version != second.version
    assert values(TEXT, rules=second) == []
    own.write_text(OWN)
    assert values(TEXT, rules=load_own(own, tmp_path / "cache")) == ACME
    assert len(compiled) == 2


def test_change_is_noticed_if_the_modification_time_is_reset(own, tmp_path):
    before = own.stat()
    first = load_own(own, tmp_path / "cache")
    own.write_text(OWN.replace("acme_[", "corp_["))
    os.utime(own, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert load_own(own, tmp_path / "cache").version != first.version


def test_unchanged_rule_files_are_not_read_again(own, tmp_path):
    with recorded_calls(_hash_contents) as reads:
        first = load_own(own, tmp_path / "cache")
        assert load_own(own, tmp_path / "cache").version == first.version
    assert len(reads) == 1


def test_missing_rule_file_is_an_error_if_the_others_are_cached(own, tmp_path):
    load_own(own, tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(RuleError, match=r"none\.toml: No such file"):
            load_ruleset([own, tmp_path / "none.toml"], built_in=False, cache=tmp_path / "cache")


def test_error_in_own_rules_is_raised_before_built_in_rules_are_read(own, tmp_path):
    with (
        recorded_calls(load_rule_files) as reads,
        pytest.raises(RuleError, match=r"none\.toml: No such file"),
    ):
        load_ruleset([own, tmp_path / "none.toml"])
    assert [read.arguments["paths"] for read in reads] == [[own, tmp_path / "none.toml"]]


def test_built_in_rules_come_from_the_cache_if_there_are_own_rules(own, tmp_path):
    cache = cached_in(tmp_path) / "outcrop"
    with recorded_calls(load_rule_files) as reads:
        rules, _ = read_rules([own], cache=cache)
    assert [read.arguments["paths"] for read in reads] == [[own]]
    assert rules[:-1] == [rule.without_examples() for rule in ruleset().rules]
    assert rules[-1].id == "acme"
    own.write_text(OWN.replace("acme", "github_pat_classic"))
    with pytest.raises(
        RuleError,
        match=r"own\.toml:6: rule github_pat_classic: is already defined in .*github\.toml:[0-9]+",
    ):
        load_ruleset([own], cache=cache)


def test_cached_rules_keep_their_origin(own, tmp_path):
    load_own(own, tmp_path / "cache")
    assert [rule.origin.partition(":")[0] for rule in load_own(own, tmp_path / "cache").rules] == [str(own)]


@pytest.mark.parametrize("damage", [DAMAGE["empty"], DAMAGE["cut"], DAMAGE["rubbish"]])
def test_damaged_version_file_is_replaced(own, tmp_path, damage):
    first = load_own(own, tmp_path / "cache")
    (version_file,) = (tmp_path / "cache").glob("*.version")
    version_file.write_bytes(damage(version_file.read_bytes()))
    assert load_own(own, tmp_path / "cache").version == first.version
    assert version_file.read_text() == first.version


def test_rule_file_that_became_invalid_is_an_error_although_it_was_cached(own, tmp_path):
    load_own(own, tmp_path / "cache")
    own.write_text("rubbish")
    with pytest.raises(RuleError):
        load_own(own, tmp_path / "cache")
    own.unlink()
    with pytest.raises(RuleError):
        load_own(own, tmp_path / "cache")


def test_cache_has_no_unfinished_files_and_is_private(own, tmp_path):
    load_own(own, tmp_path / "cache")
    assert sorted(file.suffix for file in (tmp_path / "cache").iterdir()) == [".db", ".json", ".version"]
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


def test_unfinished_files_are_removed(own, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    left, writing = cache / "rules-1.db.0123", cache / "rules-1.db.4567"
    for file in (left, writing):
        file.write_bytes(b"x")
    os.utime(left, (1, 1))
    load_own(own, cache)
    assert {file.suffix for file in cache.iterdir()} == {".db", ".json", ".version", ".4567"}
    for file in [*cache.iterdir()]:
        file.unlink()
        if file != writing:  # a folder with this name cannot be replaced by a file
            (file / "folder").mkdir(parents=True)
    load_own(own, cache)
    assert len([*cache.iterdir()]) == 3
    assert all(path.is_dir() for path in cache.iterdir())


def test_gitleaks_rules_come_from_the_cache(tmp_path, compiled):
    config = tmp_path / "gitleaks.toml"
    config.write_text("[[rules]]\nid = 'acme'\nregex = 'acme_[0-9a-f]{16}'\nkeywords = ['ACME']\n")
    first, second = (
        load_ruleset([], built_in=False, gitleaks=config, cache=tmp_path / "cache") for _ in range(2)
    )
    assert len(compiled) == 1
    assert tuple(rule.without_examples() for rule in first.rules) == tuple(second.rules)
    assert values(TEXT, rules=second) == ACME


def test_threads_can_scan_at_the_same_time():
    data = " and ".join(github_token(number) for number in range(500)).encode() + b" some words" * 200_000
    rules = ruleset()
    expected = sorted(find_trigger_matches(rules, data))
    with ThreadPoolExecutor(4) as threads:
        assert all(
            sorted(matches) == expected
            for matches in threads.map(lambda _: find_trigger_matches(rules, data), range(24))
        )


OTHER_PROCESSOR = {
    "its platform field names other instructions": lambda database: (
        database[:12] + b"\xff" * 8 + database[20:]
    ),
    "cut off": lambda database: database[:-100],
    "another byte": lambda database: database[:-1000] + b"~" + database[-999:],
}


def package(folder: Path, own: Path) -> str:
    """Write the compiled rules of a file to a folder, as an installation has them; return their version."""
    compiled = load_own(own, folder)
    for file in folder.glob("*.version"):
        file.unlink()
    return compiled.version


def test_rules_come_from_the_package_if_the_cache_has_none(own, tmp_path):
    version = package(tmp_path / "package", own)
    ruleset = load_compiled(tmp_path / "empty", version, tmp_path / "package")
    assert ruleset is not None
    assert values(TEXT, rules=ruleset) == ACME
    assert load_compiled(None, version, tmp_path / "package") is not None
    assert load_compiled(None, "another", tmp_path / "package") is None
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize("change", OTHER_PROCESSOR.values(), ids=OTHER_PROCESSOR)
def test_packaged_database_that_does_not_fit_is_not_used(own, tmp_path, change):
    version = package(tmp_path, own)
    (file,) = tmp_path.glob("*.db")
    file.write_bytes(change(file.read_bytes()))
    assert load_compiled(None, version, tmp_path) is None


def test_unused_rule_sets_are_removed_after_a_month(tmp_path):
    old, used, other = tmp_path / "rules-old.db", tmp_path / "rules-used.json", tmp_path / "notes"
    month = time.time() - 31 * 86_400
    for file in (old, used, other):
        file.write_bytes(b"x")
        os.utime(file, (month, month))
    load_compiled(tmp_path, "used")
    save_ruleset(tmp_path, ruleset())
    assert not old.exists()
    assert used.exists()
    assert other.exists()
