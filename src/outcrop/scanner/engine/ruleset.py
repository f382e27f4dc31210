"""Rules ready to scan with, and kept on disk as they are, since compiling them takes longer than most scans."""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from threading import local
from typing import NamedTuple
from uuid import uuid4

import hyperscan

from outcrop.scanner.generic.find import LEAD_IN_CHARS
from outcrop.scanner.rules.cache_format import FORMAT, LazyRules, deserialize_rules, serialize_rules
from outcrop.scanner.rules.model import BUILT_IN_RULES, JUDGED_BEFORE, CredentialForm, Rule, list_rule_files

ENGINE = 43  # part of the version: raise it when the same rules would find something else
_ENGINES = f"{ENGINE} {hyperscan.__version__} {FORMAT}".encode()  # type: ignore[attr-defined]
_SUFFIXES = (".db", ".json")
_KEPT = 30 * 86_400  # seconds
_UNFINISHED = 60.0  # seconds after which nobody is still writing
_MOST_BARREN = 2_000
_VERSION = 32  # hexadecimal digits
IN_LINE = 2  # with the mark behind a value
NEAR = 300  # as wide nearly all triggers are at most


class TriggerReach(NamedTuple):
    """How far around a trigger's end something matters."""

    before: int
    after: int
    back: int | None = (
        None  # where nothing behind its line matters: how far before it a line must end that does
    )
    judge: str = ""  # by which the line alone matters where the name stands in it

    @property
    def is_far(self) -> bool:
        """Tell whether what matters may stand in another line that is not near."""
        return self.back is None and self.before + self.after > NEAR


class RuleSet:
    """Rules with their database.

    A match's id is a trigger's number; then come the four phases of base64, an escape, an escaped quote, an archive in base64.
    """

    def __init__(
        self, rules: LazyRules, version: str, database: hyperscan.Database, notes: Sequence[str] = ()
    ) -> None:
        self.rules = rules
        self.notes = notes  # what a configuration of gitleaks says and is not done
        self.version = version
        self.database = database
        self.count = len(rules.triggers)
        self.barren: set[bytes] = (
            set()
        )  # stretches by name in which nothing was found: versions of one file repeat them
        self._of_thread = local()
        self._reach: dict[int, TriggerReach] = {}
        self._triggered: dict[int, list[tuple[Rule, CredentialForm]]] = {}

    def triggered(self, number: int) -> list[tuple[Rule, CredentialForm]]:
        """Give the forms of a trigger, each with its rule."""
        known = self._triggered.get(number)
        if known is None:
            known = self._triggered[number] = [
                ((rule := self.rules[at]), rule.forms[form]) for at, form in self.rules.triggers[number]
            ]
        return known

    def reach(self, number: int) -> TriggerReach:
        """Give how far around a trigger's end any of its forms looks, required companions included."""
        known = self._reach.get(number)
        if known is None:
            known = self._reach[number] = _widest(
                [_reach_of(rule, form) for rule, form in self.triggered(number)]
            )
        return known

    def note_barren(self, stretch: bytes) -> None:
        if len(self.barren) >= _MOST_BARREN:
            self.barren.clear()
        self.barren.add(stretch)

    @property
    def scratch(self) -> hyperscan.Scratch:
        """Give the room that a thread scans in: two threads in the same one end both their scans."""
        if not hasattr(self._of_thread, "scratch"):
            self._of_thread.scratch = hyperscan.Scratch(self.database)
        scratch: hyperscan.Scratch = self._of_thread.scratch
        return scratch


def _reach_of(rule: Rule, form: CredentialForm) -> TriggerReach:
    more = max(
        (companion.within for companion in rule.companions if companion.required), default=0
    )  # others make no other finding of it
    before, after = form.reach
    if more:
        return TriggerReach(before + more, after + more)
    if form.judge in LEAD_IN_CHARS:  # of a value the line is read, and somewhat more of what stands before it
        return TriggerReach(before, after, JUDGED_BEFORE + max(LEAD_IN_CHARS[form.judge]), form.judge)
    return TriggerReach(before, after, IN_LINE if form.window.single_line else None)


def _widest(reaches: list[TriggerReach]) -> TriggerReach:
    if len(reaches) == 1:
        return reaches[0]
    back = [reach.back for reach in reaches if reach.back is not None]
    before, after = max(reach.before for reach in reaches), max(reach.after for reach in reaches)
    return TriggerReach(before, after, max(back) if len(back) == len(reaches) else None)


def load_ruleset(
    own: Sequence[Path] = (),
    *,
    built_in: bool = True,
    gitleaks: Path | None = None,
    cache: Path | None = None,
) -> RuleSet:
    """Load the built-in rules and a user's own, from the cache where these very files have been compiled before."""
    paths = [*([BUILT_IN_RULES] if built_in else []), *own]
    version = _version([*paths, *(_files_of(gitleaks) if gitleaks else [])], cache)
    if cache is not None and (cached := _from_cache(cache, version)):
        return cached
    rules, notes = read_rules(own, built_in=built_in, gitleaks=gitleaks, cache=cache)
    made = compile_ruleset(rules, version, notes)
    if cache is not None:
        _to_cache(cache, made)
    return made


def _files_of(gitleaks: Path) -> list[Path]:
    from outcrop.scanner.rules.gitleaks_files import list_extended_files  # noqa: PLC0415 - most scans need none

    return [gitleaks, *list_extended_files(gitleaks)]


def load_cached(cache: Path, version: str) -> RuleSet | None:
    """Give the very rules that another process has loaded, whatever has become of their files since; None where none are kept."""
    return _from_cache(cache, version)


def read_rules(
    own: Sequence[Path] = (),
    *,
    built_in: bool = True,
    gitleaks: Path | None = None,
    cache: Path | None = None,
) -> tuple[list[Rule], list[str]]:
    """Read rules without compiling them. What reads their files is loaded here, and not by a scan whose rules are in the cache.

    A user's own are read first: what is wrong with them is told at once, and reading the built-in ones takes seconds.
    """
    from outcrop.scanner.rules.gitleaks_config import load_gitleaks_config  # noqa: PLC0415
    from outcrop.scanner.rules.toml import check_unique_ids, load_rule_files  # noqa: PLC0415

    mine = load_rule_files(list(own))
    more, notes = load_gitleaks_config(gitleaks) if gitleaks else ([], [])
    ready = _from_cache(cache, _version([BUILT_IN_RULES], cache)) if built_in and cache is not None else None
    theirs = list(ready.rules) if ready else load_rule_files([BUILT_IN_RULES]) if built_in else []
    rules = check_unique_ids([*theirs, *mine])
    known = {rule.id for rule in rules}
    return rules + [
        rule._replace(id=f"gitleaks-{rule.id}") if rule.id in known else rule for rule in more
    ], list(notes)


def compile_ruleset(rules: Sequence[Rule], version: str = "", notes: Sequence[str] = ()) -> RuleSet:
    from outcrop.scanner.engine.hyperscan_db import compile_rules  # noqa: PLC0415 - nor what compiles them

    looked_for, database = compile_rules(rules)
    return RuleSet(LazyRules.from_rules(looked_for), version, database, notes)


def _version(paths: Sequence[Path], cache: Path | None) -> str:
    """Name rules by what their files hold. Files that are as they were when they were read last are not read again."""
    files = [file for path in paths for file in list_rule_files(path)]
    noted = cache / f"rules-{_signs(files)}.version" if cache else None
    if noted is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if len(known := noted.read_text("ascii")) == _VERSION:
                return known
    version = _digest(files)
    if noted is not None and noted.name == f"rules-{_signs(files)}.version":
        _write(noted, version.encode())
    return version


def _digest(files: list[str]) -> str:
    digest = hashlib.sha256(_ENGINES)
    for file in files:
        try:
            content = Path(file).read_bytes()
        except OSError:
            content = b""  # the loader says what is wrong with it
        digest.update(b"%d\0%s" % (len(content), content))
    return digest.hexdigest()[:_VERSION]


def _signs(files: list[str]) -> str:
    """Give what changes whenever one of the files does: the system sets a file's last change itself, whoever writes it."""
    digest = hashlib.sha256(_ENGINES)
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116 - a path of each of hundreds of names takes as long
        except OSError:
            digest.update(f"{file}\0missing\0".encode("utf-8", "surrogateescape"))
            continue
        digest.update(
            f"{file}\0{status.st_size} {status.st_ctime_ns} {status.st_ino}\0".encode(
                "utf-8", "surrogateescape"
            )
        )
    return digest.hexdigest()[:_VERSION]


def _from_cache(cache: Path, version: str) -> RuleSet | None:
    _used(cache, version)
    try:
        rules, notes = deserialize_rules((cache / f"rules-{version}.json").read_bytes())
        database = hyperscan.loadb((cache / f"rules-{version}.db").read_bytes(), hyperscan.HS_MODE_BLOCK)
    except (OSError, ValueError, hyperscan.HyperscanError):
        return None
    return RuleSet(rules, version, database, notes)


def _to_cache(cache: Path, made: RuleSet) -> None:
    """Keep the compiled rules; a cache that cannot be written is no failure."""
    contents = hyperscan.dumpb(made.database), serialize_rules(made.rules, made.notes)
    for suffix, content in zip(_SUFFIXES, contents, strict=True):
        _write(cache / f"rules-{made.version}{suffix}", content)


def _write(file: Path, content: bytes) -> None:
    """Write a file of the cache in one go, and sweep those that nobody uses; where nothing can be written, that is no failure."""
    unfinished = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        now = unfinished.stat().st_mtime
        unfinished.replace(file)
        _sweep(file.parent, now)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def _used(cache: Path, version: str) -> None:
    """Note by its time that a cached rule set is in use."""
    for suffix in _SUFFIXES:
        with contextlib.suppress(OSError):
            os.utime(cache / f"rules-{version}{suffix}")


def _sweep(cache: Path, now: float) -> None:
    """Remove rule sets that were not used for a month, and what a killed process left unfinished."""
    for file in cache.glob("rules-*"):
        with contextlib.suppress(OSError):
            if now - file.stat().st_mtime > (
                _KEPT if file.suffix in {*_SUFFIXES, ".version"} else _UNFINISHED
            ):
                file.unlink()
