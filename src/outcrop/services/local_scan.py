"""`outcrop scan` without an account: targets in, findings and gaps out, no database.

The same input gives the same findings in the same order with the same ids, on any machine.
"""

import hashlib
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from outcrop.domain.errors import OperatorError, OutcropError
from outcrop.domain.finding import Confidence, SourceType, Status, Validation, Visibility
from outcrop.domain.place import line_address
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import OPTIONS, Spec, TargetKind, parse_target
from outcrop.scanner.confirm import Hit
from outcrop.scanner.content import scan_stream
from outcrop.scanner.ruleset import RuleSet
from outcrop.scanner.score import Evidence, score
from outcrop.sources import files, git
from outcrop.sources.base import Located, Outcome, Progress, for_path, member, shown
from outcrop.sources.clone import COMMIT_REF, Remote, clone, fetch_commit
from outcrop.sources.repository import Repository, find_git_folder, open_local, resolve
from outcrop.sources.workspace import work_folder

if TYPE_CHECKING:
    from outcrop.sources.consist import Found
    from outcrop.sources.elsewhere import Reach
    from outcrop.validation.verdict import Verdict

IGNORE_FILE = ".outcropignore"
_NAMESPACE = uuid.UUID("6f3b1f0e-6f0a-5d0c-9c55-0c1d3f0f7a11")
TargetType = Literal["folder", "git", "stdin", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller of the scan can choose."""

    ruleset: RuleSet
    floor: Confidence = Confidence.MEDIUM
    jobs: int = 1
    cache: Path | None = None
    work: Path = Path()
    gitignore: bool = False
    staged: bool = False
    since: str | None = None
    type: TargetType | None = None
    baseline: frozenset[str] = frozenset()
    stdin: IO[bytes] | None = None
    kind: TargetKind | None = None  # of what stands elsewhere, where the guess would be wrong
    web_host: str = "github.com"
    reach: "Reach | None" = None  # how to get to what stands elsewhere


@dataclass(frozen=True, slots=True)
class LocalFinding:
    """A finding of a local scan; `fields` is what is shown, the credential and what it was found with stand apart from it."""

    fields: dict[str, Any]
    hit: Hit
    evidence: Evidence

    @property
    def secret(self) -> Secret:
        return self.hit.secret

    @property
    def is_valid(self) -> bool:
        return self.evidence.validation is Validation.VALID


@dataclass(slots=True)
class Report:
    findings: list[LocalFinding] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # targets that could not be read at all
    files: int = 0
    size: int = 0
    commits: int = 0


def scan(targets: list[str], options: Options, progress: Progress) -> Report:
    """Scan targets one after the other. One that cannot be read at all is told in `failures`; the rest is still scanned."""
    report = Report()
    for target in targets:
        try:
            for outcome, place in _scan_target(target, options, progress, report):
                report.gaps += outcome.gaps
                report.files += outcome.files
                report.size += outcome.size
                report.commits += outcome.commits
                report.findings += _findings(outcome.located, place, options)
        except OutcropError as error:
            report.failures.append(error.message)
    return report


def _nothing(_path: bytes) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _Place:
    """What all findings of one target share."""

    source: str
    url: str | None = None
    full_name: str | None = None
    visibility: Visibility = Visibility.UNKNOWN
    gist: bool = False
    ignored: Callable[[bytes], bool] = _nothing


def _scan_target(target: str, options: Options, progress: Progress, report: Report) -> Iterator[tuple[Outcome, _Place]]:
    kind = "elsewhere" if _is_elsewhere(target) else options.type or _guess(target)
    if kind == "stdin":
        yield _scan_stdin(options), _Place("-")
    elif kind == "git":
        yield _scan_git(target, options, progress)
    elif options.staged or (options.since and kind == "folder"):
        raise OperatorError(f"{target}: is not a git repository on this machine, so there is nothing staged and no history")
    elif kind == "elsewhere":
        yield from _scan_elsewhere(target, options, progress, report)
    else:
        yield _scan_folder(target, options, progress)


def _is_elsewhere(target: str) -> bool:
    return target.startswith(("https://", "http://", "github:", "gists:"))


def _scan_elsewhere(target: str, options: Options, progress: Progress, report: Report) -> Iterator[tuple[Outcome, _Place]]:
    """Scan what an address, or a name at GitHub, stands for: one repository or site after the other."""
    from outcrop.sources.consist import Found  # noqa: PLC0415 - scanning files needs no client
    from outcrop.sources.elsewhere import list_sources, look_at_site  # noqa: PLC0415

    if options.reach is None:
        raise OperatorError(f"{target}: only what is on this machine can be scanned here")
    remote = Remote.parse(target) if target.startswith("https://") else None
    kind, name = parse_target(remote.url if remote else target, options.kind, web_host=options.web_host)
    gaps: list[Gap] = []
    if remote and remote.login and kind is TargetKind.REPOSITORY:
        found_here = [Found(name, "git", remote.url, html_url=name.removesuffix(".git"), full_name=_full_name(name))]
    else:
        found_here = list_sources(Spec(kind, name, options=dict(OPTIONS[kind])), options.reach, gaps)
    report.gaps += [(gap.what, gap.why) for gap in gaps]
    for found in found_here:
        place = _Place(found.source, found.html_url or found.url, found.full_name, found.visibility, found.gist)
        if found.kind == "site":
            yield look_at_site(found, options.reach, options.ruleset, options.floor, progress), place
            continue
        login = remote.login if remote else None
        try:
            yield _scan_remote(found, options.reach.remote(found) if login is None else Remote(found.url, login), place, options, progress)
        except OperatorError as error:
            if len(found_here) == 1:
                raise
            report.gaps.append((found.full_name or found.url, error.message))


def _scan_remote(found: "Found", remote: Remote, place: _Place, options: Options, progress: Progress) -> tuple[Outcome, _Place]:
    assert options.reach is not None  # noqa: S101 - asked before
    with work_folder(options.work) as work:
        if found.commit:
            repository = fetch_commit(remote, found.commit, work, options.reach.egress)
            run = git.Scan(repository, options.ruleset, options.floor, options.jobs, progress)
            return git.scan_commit(run, repository.refs[COMMIT_REF]), place
        repository = clone(remote, work, options.reach.egress)
        run = git.Scan(repository, options.ruleset, options.floor, options.jobs, progress)
        outcome = git.scan_since(run, resolve(repository, options.since)) if options.since else git.scan_history(run)
        return outcome, replace(place, ignored=_ignoring_at_head(repository))


def _guess(target: str) -> TargetType:
    if target == "-":
        return "stdin"
    if "://" in target or target.startswith("git@"):
        raise OperatorError(f"{_without_user(target)}: only https addresses can be cloned")
    try:
        path = Path(target)
        return "git" if path.is_dir() and find_git_folder(path) else "folder"
    except OSError as error:  # a name that is too long
        raise OperatorError(f"{shown(os.fsencode(target))}: {(error.strerror or 'cannot be read').lower()}") from None


def _scan_stdin(options: Options) -> Outcome:
    size = 0

    def read(count: int) -> bytes:
        nonlocal size
        data = options.stdin.read(count) if options.stdin else b""
        size += len(data)
        return data

    found = scan_stream(options.ruleset, read, options.floor)
    outcome = Outcome(located=[Located(hit, member(b"-", inner)) for inner, hit in for_path(found, b"-")], files=1, size=size)
    outcome.gaps = [("-", reason) for reason in found.gaps]
    return outcome


def _scan_folder(target: str, options: Options, progress: Progress) -> tuple[Outcome, _Place]:
    path = Path(target)
    try:
        path.stat()
    except OSError as error:
        raise OperatorError(f"{shown(os.fsencode(target))}: {(error.strerror or 'cannot be read').lower()}") from None
    ignored = _ignoring(path / IGNORE_FILE) if path.is_dir() else _nothing
    work = files.Folder(path, options.ruleset, options.floor, options.jobs, ignored, gitignore=options.gitignore)
    return files.scan_folder(work, progress), _Place(os.path.realpath(path), ignored=ignored)


def _scan_git(target: str, options: Options, progress: Progress) -> tuple[Outcome, _Place]:
    git_folder = find_git_folder(Path(target))
    if git_folder is None:
        raise OperatorError(f"{shown(os.fsencode(target))}: is not a git repository")
    with work_folder(options.work) as work:
        repository = open_local(git_folder, work)
        place = _Place(os.path.realpath(target), ignored=_ignoring(Path(target) / IGNORE_FILE, _ignoring_at_head(repository)))
        key = os.fsencode(os.path.realpath(git_folder))
        run = git.Scan(repository, options.ruleset, options.floor, options.jobs, progress, options.cache, key)
        if options.staged:
            return git.scan_staged(run, git_folder), place
        if options.since:
            return git.scan_since(run, resolve(repository, options.since)), place
        return git.scan_history(run), place


def _without_user(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _full_name(url: str) -> str | None:
    parts = _without_user(url).partition("://")[2].removesuffix("/").removesuffix(".git").split("/")[1:]
    return "/".join(parts[-2:]) if len(parts) >= 2 else None


def _ignoring(file: Path, otherwise: Callable[[bytes], bool] = _nothing) -> Callable[[bytes], bool]:
    """Read a file of patterns in the syntax of .gitignore."""
    if not file.is_file():  # nor a pipe that would make us wait
        return otherwise
    try:
        with file.open("rb") as opened:
            return _ignored_by(opened.read(1 << 20))
    except OSError:
        return otherwise


def _ignoring_at_head(repository: Repository) -> Callable[[bytes], bool]:
    text = git.file_at_head(repository, IGNORE_FILE.encode())
    return _ignored_by(text) if text else _nothing


def _ignored_by(text: bytes) -> Callable[[bytes], bool]:
    import pathspec  # noqa: PLC0415 - most scans need none

    try:
        spec = pathspec.GitIgnoreSpec.from_lines(text.decode("utf-8", "surrogateescape").splitlines())
    except ValueError as error:
        raise OperatorError(f"{IGNORE_FILE}: {error}") from None
    return lambda path: spec.match_file(path.decode("utf-8", "surrogateescape"))


def _findings(located: Iterable[Located], place: _Place, options: Options) -> Iterator[LocalFinding]:
    """Number, order and describe what was found; allowed, ignored and known ones are left out."""
    kept = [one for one in located if not one.hit.allowed and not (one.path and place.ignored(one.path.partition(b"!")[0]))]
    kept.sort(key=_order)
    spread = Counter(reveal(one.hit.secret) for one in kept)
    prints = fingerprints(kept)
    for one, fingerprint in zip(kept, prints, strict=True):
        if fingerprint not in options.baseline:
            evidence = _evidence(one, place, spread[reveal(one.hit.secret)])
            yield LocalFinding(_fields(one, fingerprint, place, evidence), one.hit, evidence)


def _order(one: Located) -> tuple[bytes, int, int, str]:
    return one.path or b"", one.hit.line, one.hit.column, one.hit.rule.id


def fingerprints(located: list[Located]) -> list[str]:
    """Name findings so that a moved line changes nothing and a guessed password is not confirmed.

    The name is the path, 20 bits of the value's digest, and a counter for values that share those bits, in the
    order of their whole digests, which does not depend on where they stand.
    """
    digests = [hashlib.sha256(reveal(one.hit.secret).encode("utf-8", "surrogateescape")).hexdigest() for one in located]
    names = [f"{one.hit.secret.masked_within(shown(one.path or b''))}:{digest[:5]}" for one, digest in zip(located, digests, strict=True)]
    order = sorted(range(len(located)), key=lambda at: (names[at], digests[at]))
    counted: dict[str, int] = {}
    numbers = [0] * len(located)
    for at in order:
        counted[names[at]] = counted.get(names[at], 0) + 1
        numbers[at] = counted[names[at]]
    return [f"{name}:{number}" for name, number in zip(names, numbers, strict=True)]


def _evidence(one: Located, place: _Place, places: int) -> Evidence:
    """Give what the score is made from while nobody has been asked."""
    source_type = one.source_type or (SourceType.GIST if place.gist else SourceType.REPO if one.at_tip else SourceType.COMMIT)
    path = None if one.path is None else one.hit.secret.masked_within(shown(one.path))
    return Evidence(
        Validation.UNVALIDATED, Confidence.LOW, one.hit.strength, one.hit.rule.impact, source_type, place.visibility,
        path=path, placeholder=one.hit.placeholder, places=places,
    )  # fmt: skip


def _fields(one: Located, fingerprint: str, place: _Place, evidence: Evidence) -> dict[str, Any]:
    hit, origin = one.hit, one.origin
    at = datetime.fromtimestamp(origin.at, UTC) if origin and origin.at is not None else None
    url = one.url or (place.url and line_address(place.url, origin.commit if origin else None, one.path, hit.line))
    made = score(evidence)
    return {
        "id": uuid.uuid5(_NAMESPACE, f"{shown(os.fsencode(place.source))}\0{fingerprint}"),
        "status": Status.ACTIVE,
        "validation_status": evidence.validation,
        "validation_confidence": evidence.validation_confidence,
        "validation_detail": {"enabled_services": []},
        "composite_score": made.total,
        "source_type": evidence.source_type,
        "source_visibility": evidence.visibility,
        "source_url": hit.secret.masked_within(url) if url else None,
        "repo_full_name": place.full_name,
        "file_path": evidence.path,
        "line_number": hit.line,
        "matched_text": hit.secret.masked(),
        "pattern": {"name": hit.rule.name, "secret_type": hit.rule.secret_type},
        "first_seen_at": at,
        "last_seen_at": at,
        "seen_count": 1,
        "resolved_at": None,
        "resolution_note": None,
        "resolution_evidence": None,
        "suppressed_at": None,
        "fingerprint": fingerprint,
        "rule": hit.rule.id,
        "confidence": hit.confidence,
        "column": hit.column,
        "current_line": one.current_line,
        "allowed_in_source": False,
        "commit": origin.commit if origin else None,
        "author": origin.author if origin else None,
        "committed_at": at,
        "unreachable": one.unreachable,
        "encoding": list(hit.encoding),
        "parts": {name: part.masked() for name, part in sorted(hit.parts.items())},
        "score": made.parts,
    }


def judged(finding: LocalFinding, verdict: "Verdict") -> LocalFinding:
    """Give a finding with a verdict and the score that follows; no time is told, so that the same answers give the same bytes."""
    evidence = replace(
        finding.evidence,
        validation=verdict.status,
        validation_confidence=verdict.confidence,
        services=verdict.services,
        services_asked=verdict.asked,
        test_mode=verdict.test_mode,
        canary=verdict.canary,
    )
    made = score(evidence)
    told = {
        "validation_status": verdict.status,
        "validation_confidence": verdict.confidence,
        "validation_detail": {"enabled_services": list(verdict.services), "reason": verdict.reason},
        "composite_score": made.total,
        "score": made.parts,
    }
    return LocalFinding(finding.fields | told, finding.hit, evidence)
