"""All rules compiled into one database for the first pass, and kept on disk, since compiling takes longer than most scans."""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from threading import local
from typing import Any
from uuid import uuid4

import hyperscan
import orjson

from outcrop.domain.finding import Confidence
from outcrop.scanner.decode import ESCAPES, QUOTED, base64_literals
from outcrop.scanner.match import compile_regex
from outcrop.scanner.regex import literal_prefixes
from outcrop.scanner.rule import Form, Impact, Part, Rule, RuleError, Strength, files_of
from outcrop.scanner.trigger import alternatives, escaped, trigger

BUILT_IN = Path(__file__).parent.parent / "rules"
ENGINE = 6  # part of the version: raise it when the same rules would find something else
_SUFFIXES = (".db", ".json")
_KEPT = 30 * 86_400  # seconds
_TOGETHER = 16  # triggers that are tried at once when one of all is too much


class RuleSet:
    """Rules with their database. A match's id is a trigger's number; then come the four phases of base64, an escape, an escaped quote."""

    def __init__(self, rules: tuple[Rule, ...], version: str, database: hyperscan.Database) -> None:
        self.rules = rules
        self.version = version
        self.database = database
        self.by_id = {rule.id: rule for rule in rules}
        self.triggered = list(_by_trigger(rules).values())
        self._of_thread = local()

    @cached_property
    def reach(self) -> list[tuple[int, int]]:
        """Give how far around a trigger's end any of its forms looks, companions included; only encoded text asks for it."""
        return [_reach(forms) for forms in self.triggered]

    @property
    def scratch(self) -> hyperscan.Scratch:
        """Give the room that a thread scans in: two threads in the same one end both their scans."""
        if not hasattr(self._of_thread, "scratch"):
            self._of_thread.scratch = hyperscan.Scratch(self.database)
        scratch: hyperscan.Scratch = self._of_thread.scratch
        return scratch


def _reach(forms: list[tuple[Rule, Form]]) -> tuple[int, int]:
    far = [max((part.within for part in rule.parts), default=0) for rule, _ in forms]
    return (
        max(form.reach[0] + more for (_, form), more in zip(forms, far, strict=True)),
        max(form.reach[1] + more for (_, form), more in zip(forms, far, strict=True)),
    )


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> Any:
    """Compile a pattern of the second pass the first time it is needed."""
    return compile_regex(pattern)


def load(own: Sequence[Path] = (), *, built_in: bool = True, gitleaks: Path | None = None, cache: Path | None = None) -> RuleSet:
    """Load the built-in rules and a user's own, from the cache where these very files have been compiled before."""
    paths = [*([BUILT_IN] if built_in else []), *own]
    version = _version([*paths, *([gitleaks] if gitleaks else [])])
    if cache is not None and (kept := _from_cache(cache, version)):
        return kept
    made = make(_read(paths, gitleaks), version)
    if cache is not None:
        _to_cache(cache, made)
    return made


def kept(cache: Path, version: str) -> RuleSet | None:
    """Give the very rules that another process has loaded, whatever has become of their files since; None where none are kept."""
    return _from_cache(cache, version)


def _read(paths: Sequence[Path], gitleaks: Path | None) -> list[Rule]:
    """Read rule files. What reads them is loaded here, and not by a scan whose rules are in the cache."""
    from outcrop.scanner.gitleaks import load_gitleaks  # noqa: PLC0415
    from outcrop.scanner.loader import load_paths  # noqa: PLC0415

    rules = load_paths(list(paths))
    known = {rule.id for rule in rules}
    return rules + [rule for rule in (load_gitleaks(gitleaks) if gitleaks else []) if rule.id not in known]


def make(rules: Sequence[Rule], version: str = "") -> RuleSet:
    try:
        return RuleSet(tuple(rules), version, _database(rules))
    except hyperscan.HyperscanError:
        rules = _shortened(rules)
    try:
        return RuleSet(tuple(rules), version, _database(rules))
    except hyperscan.HyperscanError:
        _refuse(rules)
        raise


def _database(rules: Sequence[Rule]) -> hyperscan.Database:
    triggers = list(_by_trigger(rules))
    expressions = [(text, number) for number, one in enumerate(triggers) for text in alternatives(one)]
    for phase, literals in base64_literals(_literals(rules)).items():
        expressions += [(escaped(literal), len(triggers) + phase) for literal in literals]
    expressions += [*((escape, len(triggers) + 4) for escape in ESCAPES), (QUOTED, len(triggers) + 5)]
    return _compiled(expressions)


def _compiled(expressions: list[tuple[str, int]]) -> hyperscan.Database:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[text.encode("latin-1") for text, _ in expressions],
        ids=[number for _, number in expressions],
        elements=len(expressions),
        flags=[0] * len(expressions),
    )
    return database


def _shortened(rules: Sequence[Rule]) -> list[Rule]:
    """Give rules whose triggers are mere beginnings where the whole pattern is too much for the first pass."""
    whole = sorted({form.trigger for rule in rules for form in rule.forms if form.whole})
    groups = [whole[at : at + _TOGETHER] for at in range(0, len(whole), _TOGETHER)]
    refused = {trigger for group in groups if _refused(group) for trigger in group if _refused([trigger])}
    return [replace(rule, forms=tuple(_short(form) if form.trigger in refused else form for form in rule.forms)) for rule in rules]


def _short(form: Form) -> Form:
    found = trigger(form.regex, whole=False)
    return replace(form, trigger=found.pattern, trigger_min=found.min_width, trigger_max=found.max_width, whole=False)


def _refused(triggers: Sequence[str]) -> str:
    """Give the reason for which the first pass refuses triggers; none where it takes them."""
    try:
        _compiled([(text, 0) for one in triggers for text in alternatives(one)])
    except hyperscan.HyperscanError as error:
        return str(error)
    return ""


def _refuse(rules: Sequence[Rule]) -> None:
    """Find the rule for which all of them were refused, and say so."""
    for rule in rules:
        for form in rule.forms:
            if error := _refused([form.trigger]):
                raise RuleError(f"{rule.origin}: rule {rule.id}: pattern is not taken by the linear-time engine ({error})")


def _by_trigger(rules: Sequence[Rule]) -> dict[str, list[tuple[Rule, Form]]]:
    """Group forms that begin alike, so that the first pass looks for each beginning once."""
    found: dict[str, list[tuple[Rule, Form]]] = {}
    for rule in rules:
        for form in rule.forms:
            found.setdefault(form.trigger, []).append((rule, form))
    return found


def _literals(rules: Sequence[Rule]) -> set[bytes]:
    return {literal for rule in rules for form in rule.forms for literal in literal_prefixes(form.regex) if len(literal) >= 4}


def _version(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256(f"{ENGINE} {hyperscan.__version__}".encode())  # type: ignore[attr-defined]
    for path in paths:
        for file in files_of(path):
            try:
                content = file.read_bytes()
            except OSError:
                content = b""  # the loader says what is wrong with it
            digest.update(b"%d\0%s" % (len(content), content))
    return digest.hexdigest()[:32]


def _from_cache(cache: Path, version: str) -> RuleSet | None:
    _used(cache, version)
    try:
        rules = tuple(_rule(raw) for raw in orjson.loads((cache / f"rules-{version}.json").read_bytes()))
        database = hyperscan.loadb((cache / f"rules-{version}.db").read_bytes(), hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except (OSError, ValueError, TypeError, KeyError, hyperscan.HyperscanError):
        return None
    return RuleSet(rules, version, database)


def _to_cache(cache: Path, made: RuleSet) -> None:
    """Keep the compiled rules; a cache that cannot be written is no failure."""
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        contents = hyperscan.dumpb(made.database), orjson.dumps([_kept(rule) for rule in made.rules])
        for suffix, content in zip(_SUFFIXES, contents, strict=True):
            unfinished = cache / f"rules-{made.version}{suffix}.{uuid4().hex}"
            unfinished.write_bytes(content)
            now = unfinished.stat().st_mtime
            unfinished.replace(cache / f"rules-{made.version}{suffix}")
        _sweep(cache, now)
    except OSError:
        return


def _kept(rule: Rule) -> dict[str, Any]:
    """Write a rule down without its proof, which no scan needs and which is most of it."""
    return asdict(replace(rule, examples=(), counterexamples=()))


def _used(cache: Path, version: str) -> None:
    """Note by its time that a cached rule set is in use."""
    for suffix in _SUFFIXES:
        with contextlib.suppress(OSError):
            os.utime(cache / f"rules-{version}{suffix}")


def _sweep(cache: Path, now: float) -> None:
    """Remove rule sets that were not used for a month, and what a killed process left unfinished."""
    for file in cache.glob("rules-*"):
        with contextlib.suppress(OSError):
            if now - file.stat().st_mtime > _KEPT:
                file.unlink()


def _rule(raw: dict[str, Any]) -> Rule:
    raw["forms"] = tuple(_form(form) for form in raw["forms"])
    raw["parts"] = tuple(Part(**part) for part in raw["parts"])
    raw["impact"] = Impact(raw["impact"])
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    return Rule(**fields)


def _form(raw: dict[str, Any]) -> Form:
    raw |= {
        "strength": Strength(raw["strength"]),
        "confidence": Confidence(raw["confidence"]),
        "keywords": tuple(raw["keywords"]),
        "literals": tuple(raw["literals"]),
    }
    return Form(**raw)
