"""Compiled rules come back from the cache as they were, and a bad cache is only a slow start."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outcrop.scanner.engine import load as module
from outcrop.scanner.engine.load import load_cached, load_ruleset, read_rules, save_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import scan_joined_texts
from outcrop.scanner.rules import toml
from outcrop.scanner.rules.model import RuleError
from outcrop.scanner.rules.toml import load_rule_files
from tests.support.rulesets import cached_in, github_token, ruleset, values

OWN = "issuer = 'Acme'\n[[rule]]\nid = 'acme'\nname = 'Acme'\nsecret_type = 'acme'\npattern = 'acme_[0-9a-f]{16}'\n"
TEXT = f"token = acme_0f1e9d3c7b5a2846 {github_token(1)}\n"
ACME = ["acme_0f1e9d3c7b5a2846"]


@pytest.fixture
def compiled(monkeypatch) -> list[RuleSet]:
    """Every rule set that had to be compiled."""
    made = []
    original = module.compile_ruleset

    def make(*arguments) -> RuleSet:
        made.append(original(*arguments))
        return made[-1]

    monkeypatch.setattr(module, "compile_ruleset", make)
    return made


@pytest.fixture
def own(tmp_path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


def again(own: Path, cache: Path) -> RuleSet:
    return load_ruleset([own], built_in=False, cache=cache)


def test_the_second_time_the_rules_come_from_the_cache(own, tmp_path, compiled):
    first = again(own, tmp_path / "cache")
    second = again(own, tmp_path / "cache")
    assert len(compiled) == 1
    assert tuple(second.rules) == tuple(rule.without_examples() for rule in first.rules)
    assert second.version == first.version
    assert values(TEXT, rules=second) == values(TEXT, rules=first) == ACME


def test_all_rules_come_back_equal_and_quickly(tmp_path):
    cached_in(tmp_path)
    took = []
    for _ in range(3):
        started = time.perf_counter()
        kept = module.load_cached(tmp_path / "outcrop", ruleset().version)
        took.append(time.perf_counter() - started)
    assert kept is not None
    assert min(took) < 0.3
    assert tuple(kept.rules) == tuple(rule.without_examples() for rule in ruleset().rules)
    assert kept.trigger_count == ruleset().trigger_count
    for number in range(kept.trigger_count):
        assert [form for _, form in kept.forms[number]] == [form for _, form in ruleset().forms[number]]
    assert values(TEXT, rules=kept) == values(TEXT)
    assert not any(rule.examples or rule.counterexamples for rule in kept.rules)  # no scan needs them


DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "rubbish": lambda content: b"rubbish" * 100,
    "another type": lambda content: b'{"a": 1}',
    "rules of another shape": lambda content: b'[{"id": "x", "forms": []}]',
    "rules that are shorter": lambda content: b'[["x"]]',
    "a rule less": lambda content: content.rpartition(b"\n[")[0],
    "cut at its end": lambda content: content[:-1],
    "another sign in the middle": lambda content: (
        content[: len(content) // 2] + b"~" + content[len(content) // 2 + 1 :]
    ),
}


@pytest.mark.parametrize("suffix", ["json", "db"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_made_again(own, tmp_path, compiled, suffix, damage):
    again(own, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob(f"*.{suffix}")
    file.write_bytes(damage(file.read_bytes()))
    assert values(TEXT, rules=again(own, tmp_path / "cache")) == ACME
    assert len(compiled) == 2
    assert values(TEXT, rules=again(own, tmp_path / "cache")) == ACME
    assert len(compiled) == 2


def test_a_changed_byte_in_the_database_is_noticed(own, tmp_path, compiled):
    again(own, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("*.db")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x55
    file.write_bytes(content)
    assert values(TEXT, rules=again(own, tmp_path / "cache")) == ACME
    assert len(compiled) == 2


def test_a_folder_that_cannot_be_written_is_no_failure(own, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert values(TEXT, rules=again(own, tmp_path / "file")) == ACME
    assert values(TEXT, rules=again(own, tmp_path / "file" / "below")) == ACME
    assert values(TEXT, rules=again(own, Path("/proc/none"))) == ACME


def test_a_changed_rule_file_is_compiled_anew(own, tmp_path, compiled):
    first = again(own, tmp_path / "cache")
    own.write_text(OWN.replace("acme_[", "corp_["))
    second = again(own, tmp_path / "cache")
    assert first.version != second.version
    assert values(TEXT, rules=second) == []
    own.write_text(OWN)
    assert values(TEXT, rules=again(own, tmp_path / "cache")) == ACME
    assert len(compiled) == 2


def test_a_change_is_noticed_although_it_hides_its_time(own, tmp_path):
    before = own.stat()
    first = again(own, tmp_path / "cache")
    own.write_text(OWN.replace("acme_[", "corp_["))
    os.utime(own, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert again(own, tmp_path / "cache").version != first.version


def test_files_that_are_as_they_were_are_not_read_again(own, tmp_path, monkeypatch):
    first = again(own, tmp_path / "cache")
    monkeypatch.setattr(module, "_hash_contents", None)
    assert again(own, tmp_path / "cache").version == first.version


def test_a_file_that_is_not_there_is_told_although_the_others_are_in_the_cache(own, tmp_path):
    again(own, tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(RuleError, match=r"none\.toml: No such file"):
            load_ruleset([own, tmp_path / "none.toml"], built_in=False, cache=tmp_path / "cache")


def test_what_is_wrong_with_own_rules_is_told_before_the_built_in_ones_are_read(own, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BUILT_IN_RULES", tmp_path / "not there")
    with pytest.raises(RuleError, match=r"none\.toml: No such file"):
        load_ruleset([own, tmp_path / "none.toml"])
    with pytest.raises(RuleError, match=r"not there: No such file"):
        load_ruleset([own])


def test_beside_own_rules_the_built_in_ones_come_from_the_cache_and_are_the_same(own, tmp_path, monkeypatch):
    built_in = tmp_path / "built-in.toml"
    built_in.write_text(OWN.replace("acme", "dunder"))
    monkeypatch.setattr(module, "BUILT_IN_RULES", built_in)
    anew, _ = read_rules([own], cache=tmp_path / "cache")
    load_ruleset(cache=tmp_path / "cache")
    with monkeypatch.context() as patched:
        patched.setattr(
            toml, "load_rule_files", lambda paths: [] if built_in in paths else load_rule_files(paths)
        )
        again, _ = read_rules([own], cache=tmp_path / "cache")
    assert [rule.id for rule in anew] == ["dunder", "acme"]
    assert again == anew
    own.write_text(OWN.replace("acme", "dunder"))
    with pytest.raises(
        RuleError, match=r"own\.toml:6: rule dunder: is already defined in .*built-in\.toml:6"
    ):
        load_ruleset([own], cache=tmp_path / "cache")


def test_rules_from_the_cache_say_where_they_were_read(own, tmp_path):
    again(own, tmp_path / "cache")
    assert [rule.origin.partition(":")[0] for rule in again(own, tmp_path / "cache").rules] == [str(own)]


@pytest.mark.parametrize("damage", [DAMAGE["empty"], DAMAGE["cut"], DAMAGE["rubbish"]])
def test_a_damaged_note_of_the_version_is_not_believed(own, tmp_path, damage):
    first = again(own, tmp_path / "cache")
    (noted,) = (tmp_path / "cache").glob("*.version")
    noted.write_bytes(damage(noted.read_bytes()))
    assert again(own, tmp_path / "cache").version == first.version
    assert noted.read_text() == first.version


def test_a_file_that_became_wrong_is_told_although_it_was_cached(own, tmp_path):
    again(own, tmp_path / "cache")
    own.write_text("rubbish")
    with pytest.raises(RuleError):
        again(own, tmp_path / "cache")
    own.unlink()
    with pytest.raises(RuleError):
        again(own, tmp_path / "cache")


def test_nothing_unfinished_is_left_and_the_folder_is_private(own, tmp_path):
    again(own, tmp_path / "cache")
    assert sorted(file.suffix for file in (tmp_path / "cache").iterdir()) == [".db", ".json", ".version"]
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0


def test_what_cannot_be_put_in_place_or_was_left_unfinished_is_removed(own, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir()
    left, writing = cache / "rules-1.db.0123", cache / "rules-1.db.4567"
    for file in (left, writing):
        file.write_bytes(b"x")
    os.utime(left, (1, 1))
    again(own, cache)
    assert {file.suffix for file in cache.iterdir()} == {".db", ".json", ".version", ".4567"}
    for file in cache.iterdir():
        file.unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    again(own, cache)
    assert list(cache.iterdir()) == []


def test_rules_of_gitleaks_come_from_the_cache_too(tmp_path, compiled):
    config = tmp_path / "gitleaks.toml"
    config.write_text("[[rules]]\nid = 'acme'\nregex = 'acme_[0-9a-f]{16}'\nkeywords = ['ACME']\n")
    made = [load_ruleset([], built_in=False, gitleaks=config, cache=tmp_path / "cache") for _ in range(2)]
    assert len(compiled) == 1
    assert tuple(rule.without_examples() for rule in made[0].rules) == tuple(made[1].rules)
    assert values(TEXT, rules=made[1]) == ACME


def test_threads_can_scan_at_the_same_time():
    data = " and ".join(github_token(number) for number in range(500)).encode() + b" some words" * 200_000
    rules = ruleset()
    expected = sorted(scan_joined_texts(rules, data))
    with ThreadPoolExecutor(4) as threads:
        assert all(
            sorted(seen) == expected
            for seen in threads.map(lambda _: scan_joined_texts(rules, data), range(24))
        )


def test_rule_sets_that_nobody_uses_leave_the_cache_after_a_month(tmp_path):
    old, used, other = tmp_path / "rules-old.db", tmp_path / "rules-used.json", tmp_path / "notes"
    month = time.time() - 31 * 86_400
    for file in (old, used, other):
        file.write_bytes(b"x")
        os.utime(file, (month, month))
    load_cached(tmp_path, "used")
    save_ruleset(tmp_path, ruleset())
    assert not old.exists()
    assert used.exists()
    assert other.exists()
