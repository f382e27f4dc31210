"""Load rule sets: read rule files, compile them, and cache the result.

Compiling all rules takes longer than most scans. `load_ruleset` therefore

1. computes the version of the rule files, a hash of their contents (`_compute_version`),
2. returns the compiled rules of that version from the cache or from the package, if one of them has them and
   they fit this processor (`load_compiled`),
3. otherwise reads the files (`read_rules`), compiles them (`compile_ruleset`) and writes the cache
   (`save_ruleset`).

`outcrop rules compile` writes the compiled built-in rules into the package (PACKAGED_RULES).

The modules that read and compile rules are imported only when they are needed.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import hyperscan

from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.rules.cache_format import FORMAT, LazyRules, deserialize_rules, serialize_rules
from outcrop.scanner.rules.model import BUILT_IN_RULES, PACKAGED_RULES, Rule, list_rule_files

ENGINE = 44  # part of the version; increase it if the same rules would find something else
_VERSION_PREFIX = f"{ENGINE} {hyperscan.__version__} {FORMAT}".encode()  # type: ignore[attr-defined]
VERSION_LENGTH = 32  # hexadecimal digits
MAX_UNUSED = 30 * 86_400  # seconds after which a rule set that no scan has used is removed from the cache
MAX_WRITE_TIME = 60.0  # seconds; an older unfinished file belongs to a process that was killed
_CACHE_SUFFIXES = (".db", ".json")  # the Hyperscan database, the rules


def load_ruleset(
    own: Sequence[Path] = (),
    *,
    built_in: bool = True,
    gitleaks: Path | None = None,
    cache: Path | None = None,
) -> RuleSet:
    """Return the compiled rules: the built-in ones, those in `own`, and those of a gitleaks configuration.

    `own` are rule files or folders, `gitleaks` is the configuration's path. Take the rules from the folder
    `cache` if these files were compiled before; otherwise compile and store them there. Raise RuleError if a
    file is wrong.
    """
    paths = [*([BUILT_IN_RULES] if built_in else []), *own]
    version = _compute_version([*paths, *(_list_gitleaks_files(gitleaks) if gitleaks else [])], cache)
    if compiled := load_compiled(cache, version):
        return compiled
    rules, notes = read_rules(own, built_in=built_in, gitleaks=gitleaks, cache=cache)
    ruleset = compile_ruleset(rules, version, notes)
    if cache is not None:
        save_ruleset(cache, ruleset)
    return ruleset


def _list_gitleaks_files(gitleaks: Path) -> list[Path]:
    """Return the path of a gitleaks configuration and the paths of the configurations that it extends."""
    from outcrop.scanner.rules.gitleaks_files import list_extended_files  # noqa: PLC0415 - few scans need it

    return [gitleaks, *list_extended_files(gitleaks)]


def read_rules(
    own: Sequence[Path] = (),
    *,
    built_in: bool = True,
    gitleaks: Path | None = None,
    cache: Path | None = None,
) -> tuple[list[Rule], list[str]]:
    """Read rules without compiling them; return them and notes on gitleaks settings that have no effect.

    `own` are rule files or folders, `gitleaks` is the path of a configuration. A gitleaks rule with an id
    that another rule has gets the prefix `gitleaks-`. With a folder `cache` the built-in rules are those that
    were compiled before, if there are any: these have no examples. The files `own` are read first, as reading
    the built-in rules takes seconds.
    Raise RuleError if a file is wrong or two rules have the same id.
    """
    from outcrop.scanner.rules.gitleaks_config import load_gitleaks_config  # noqa: PLC0415
    from outcrop.scanner.rules.toml import check_unique_ids, load_rule_files  # noqa: PLC0415

    own_rules = load_rule_files(list(own))
    gitleaks_rules, notes = load_gitleaks_config(gitleaks) if gitleaks else ([], [])
    built_in_rules: list[Rule] = []
    if built_in:
        version = _compute_version([BUILT_IN_RULES], cache)
        compiled = load_compiled(cache, version) if cache is not None else None
        built_in_rules = list(compiled.rules) if compiled else load_rule_files([BUILT_IN_RULES])
    rules = check_unique_ids([*built_in_rules, *own_rules])
    ids = {rule.id for rule in rules}
    rules += [rule._replace(id=f"gitleaks-{rule.id}") if rule.id in ids else rule for rule in gitleaks_rules]
    return rules, list(notes)


def compile_ruleset(rules: Sequence[Rule], version: str = "", notes: Sequence[str] = ()) -> RuleSet:
    """Return rules compiled for a scan; raise RuleError if Hyperscan refuses the pattern of a rule.

    `version` and `notes` are stored in the rule set; `notes` are about settings that have no effect.
    """
    from outcrop.scanner.engine.hyperscan_db import compile_rules  # noqa: PLC0415

    compiled_rules, database = compile_rules(rules)
    return RuleSet(LazyRules.from_rules(compiled_rules), version, database, notes)


def load_compiled(cache: Path | None, version: str, packaged: Path | None = PACKAGED_RULES) -> RuleSet | None:
    """Return the compiled rules of this version; None if they are nowhere, or damaged.

    They are in the folder `cache` or in the folder `packaged`. Hyperscan refuses a database that was cut off
    or altered, and one for instructions that this processor does not have. The times of the files in `cache`
    are set to now, so that they count as used.
    """
    if cache is not None:
        for suffix in _CACHE_SUFFIXES:  # a file that is in use is not removed
            with contextlib.suppress(OSError):
                os.utime(cache / f"rules-{version}{suffix}")
    for folder in (cache, packaged):
        if folder is not None and (ruleset := _read_compiled(folder, version)):
            return ruleset
    return None


def _read_compiled(folder: Path, version: str) -> RuleSet | None:
    """Return the compiled rules of this version from a folder; None if they are missing or damaged."""
    try:
        rules, notes = deserialize_rules((folder / f"rules-{version}.json").read_bytes())
        database = hyperscan.loadb((folder / f"rules-{version}.db").read_bytes(), hyperscan.HS_MODE_BLOCK)
    except (OSError, ValueError, hyperscan.HyperscanError):
        return None
    return RuleSet(rules, version, database, notes)


def compile_built_in(folder: Path) -> tuple[RuleSet, bool]:
    """Make sure that a folder has the compiled built-in rules; return them, and whether they were compiled.

    Files of other versions are removed from the folder. Raise OSError if it cannot be written.
    """
    version = _compute_version([BUILT_IN_RULES], None)
    folder.mkdir(parents=True, exist_ok=True)
    present = load_compiled(None, version, folder)
    ruleset = present or compile_ruleset(read_rules()[0], version)
    names = {f"rules-{version}{suffix}" for suffix in _CACHE_SUFFIXES}
    if present is None:
        _write_compiled(folder, ruleset)
    for file in folder.glob("rules-*"):
        if file.name not in names:
            file.unlink()
    return ruleset, present is None


def save_ruleset(cache: Path, ruleset: RuleSet) -> None:
    """Write compiled rules to the folder `cache`, and remove unused files from it; ignore disk errors."""
    with contextlib.suppress(OSError):
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_compiled(cache, ruleset)
        _remove_unused(cache, time.time())


def _write_compiled(folder: Path, ruleset: RuleSet) -> None:
    """Write compiled rules to files of a folder, each atomically; raise OSError if that fails."""
    contents = hyperscan.dumpb(ruleset.database), serialize_rules(ruleset.rules, ruleset.notes)
    for suffix, content in zip(_CACHE_SUFFIXES, contents, strict=True):
        _replace(folder / f"rules-{ruleset.version}{suffix}", content)


def _compute_version(paths: Sequence[Path], cache: Path | None) -> str:
    """Return the version of the rule files below `paths`: a hash of their contents.

    The version is stored in the folder `cache` under a hash of the files' sizes and times, so that files that
    have not changed are not read again. Without `cache`, nothing is stored.
    """
    files = [file for path in paths for file in list_rule_files(path)]
    stored = cache / f"rules-{_hash_stats(files)}.version" if cache else None
    if stored is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if len(version := stored.read_text("ascii")) == VERSION_LENGTH:
                return version
    version = _hash_contents(files)
    if (
        stored is not None and stored.name == f"rules-{_hash_stats(files)}.version"
    ):  # no file has changed meanwhile
        with contextlib.suppress(OSError):
            stored.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(stored, version.encode())
            _remove_unused(stored.parent, time.time())
    return version


def _hash_contents(files: list[str]) -> str:
    """Return a hash of the files' contents and of _VERSION_PREFIX; an unreadable file counts as empty."""
    digest = hashlib.sha256(_VERSION_PREFIX)
    for file in files:
        try:
            content = Path(file).read_bytes()
        except OSError:
            content = b""  # the error is reported when the file is read as rules
        digest.update(b"%d\0%s" % (len(content), content))
    return digest.hexdigest()[:VERSION_LENGTH]


def _hash_stats(files: list[str]) -> str:
    """Return a hash of the files' paths, sizes, inodes and change times, and of _VERSION_PREFIX.

    It changes if a file does, as no user can set the change time.
    """
    digest = hashlib.sha256(_VERSION_PREFIX)
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116 - hundreds of Path objects would take as long again
            state = f"{status.st_size} {status.st_ctime_ns} {status.st_ino}"
        except OSError:
            state = "missing"
        digest.update(f"{file}\0{state}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:VERSION_LENGTH]


def _replace(file: Path, content: bytes) -> None:
    """Write a file atomically; raise OSError if that fails, and leave nothing behind."""
    unfinished = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def _remove_unused(cache: Path, now: float) -> None:
    """Remove files from the folder `cache` that were not used for MAX_UNUSED.

    Unfinished files are removed after MAX_WRITE_TIME: the process that wrote them was killed. `now` is in
    seconds since 1970. Errors are ignored.
    """
    for file in cache.glob("rules-*"):
        is_finished = file.suffix in {*_CACHE_SUFFIXES, ".version"}
        with contextlib.suppress(OSError):
            if now - file.stat().st_mtime > (MAX_UNUSED if is_finished else MAX_WRITE_TIME):
                file.unlink()
