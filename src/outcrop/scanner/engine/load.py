"""Load rule sets: read rule files, compile them, and cache the result.

Compiling all rules takes longer than most scans. `load_ruleset` therefore

1. computes the version of the rule files, a hash of their contents (`_compute_version`),
2. returns the compiled rules of that version from the cache, if they are there (`load_cached`),
3. otherwise reads the files (`read_rules`), compiles them (`compile_ruleset`) and writes the cache
   (`save_ruleset`).

The modules that read and compile rules are imported only when they are needed.
"""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import hyperscan

from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.rules.cache_format import FORMAT, LazyRules, deserialize_rules, serialize_rules
from outcrop.scanner.rules.model import BUILT_IN_RULES, Rule, list_rule_files

ENGINE = 43  # part of the version; increase it if the same rules would find something else
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
    if cache is not None and (cached := load_cached(cache, version)):
        return cached
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
    that another rule has gets the prefix `gitleaks-`. The built-in rules are taken from the folder `cache` if
    they were compiled before. The files `own` are read first, as reading the built-in rules takes seconds.
    Raise RuleError if a file is wrong or two rules have the same id.
    """
    from outcrop.scanner.rules.gitleaks_config import load_gitleaks_config  # noqa: PLC0415
    from outcrop.scanner.rules.toml import check_unique_ids, load_rule_files  # noqa: PLC0415

    own_rules = load_rule_files(list(own))
    gitleaks_rules, notes = load_gitleaks_config(gitleaks) if gitleaks else ([], [])
    built_in_rules: list[Rule] = []
    if built_in:
        cached = load_cached(cache, _compute_version([BUILT_IN_RULES], cache)) if cache is not None else None
        built_in_rules = list(cached.rules) if cached else load_rule_files([BUILT_IN_RULES])
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


def load_cached(cache: Path, version: str) -> RuleSet | None:
    """Return the compiled rules of this version from the folder `cache`; None if they are missing or damaged.

    The times of the cached files are set to now, so that they count as used.
    """
    for suffix in _CACHE_SUFFIXES:  # a file that is in use is not removed
        with contextlib.suppress(OSError):
            os.utime(cache / f"rules-{version}{suffix}")
    try:
        rules, notes = deserialize_rules((cache / f"rules-{version}.json").read_bytes())
        database = hyperscan.loadb((cache / f"rules-{version}.db").read_bytes(), hyperscan.HS_MODE_BLOCK)
    except (OSError, ValueError, hyperscan.HyperscanError):
        return None
    return RuleSet(rules, version, database, notes)


def save_ruleset(cache: Path, ruleset: RuleSet) -> None:
    """Write compiled rules to the folder `cache`, and remove unused files from it; ignore disk errors."""
    contents = hyperscan.dumpb(ruleset.database), serialize_rules(ruleset.rules, ruleset.notes)
    for suffix, content in zip(_CACHE_SUFFIXES, contents, strict=True):
        _write(cache / f"rules-{ruleset.version}{suffix}", content)


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
        _write(stored, version.encode())
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


def _write(file: Path, content: bytes) -> None:
    """Replace a file of the cache atomically, and remove unused files beside it; ignore disk errors.

    The folder is created if it is missing.
    """
    unfinished = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        now = unfinished.stat().st_mtime
        unfinished.replace(file)
        _remove_unused(file.parent, now)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()


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
