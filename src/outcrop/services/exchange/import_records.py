"""Build the rows of imported findings: masked, fingerprinted, encrypted, and scored if they are reports."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4, uuid5

from pydantic import ValidationError

from outcrop.domain.finding import OPEN_STATUSES, CredentialPattern, Finding, Resolution, Status, cut_note
from outcrop.domain.place import PLAIN_PATH, SEALED_PATH, SERVED_TYPES, identity, line_address, source_of
from outcrop.domain.secret import MASK, Secret, is_masked, is_password, reveal
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.masking import hides_in_paths
from outcrop.scanner.finding_context import decide_context
from outcrop.services.exchange.formats import FileRecord, ImportFormat, RecordError
from outcrop.services.exchange.import_schema import (
    COPIED_FIELDS,
    ImportedEvidence,
    ImportedFinding,
    ImportedPattern,
    validate_finding,
)
from outcrop.services.exchange.recognise import Recogniser
from outcrop.services.exchange.report_score import score_report
from outcrop.sources.repository_address import normalise_repository, repository_name
from outcrop.store.findings.record import FindingRecord
from outcrop.store.keyring import Keyring

_PROGRESS_EVERY = 1_000  # records
# Namespace of the ids of reported findings without a credential. It never changes, so that importing a report
# again finds them.
_NAMESPACE = UUID("0d7c2a56-7d51-5c0b-8a1e-3f0c9c1b6a42")


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """The row of an imported finding, and its position in the file for error messages."""

    where: str
    restores: bool  # replaces all fields of a stored finding; otherwise it is a scanner's report
    has_id: bool  # whether the file names the id of the finding to restore
    record: FindingRecord
    address: str | None = None  # of the repository that is the source; None: another source
    path: str = ""
    report_key: str = ""  # type and the tool's own fingerprint
    # Ids that the tool's own fingerprint gives: the first is the record's own, others are of addresses that
    # the source had. Empty if the record restores, or has a credential and no such fingerprint.
    report_ids: tuple[UUID, ...] = ()


class RecordBuilder:
    """Builds the rows of imported findings. Runs in a thread, while the database writes."""

    def __init__(
        self,
        keys: Keyring,
        account_id: int,
        now: datetime,
        *,
        keep_secrets: bool,
        format_: ImportFormat,
        restore: bool,
        may_restore: bool = True,
        repo: str | None = None,
        commit: str | None = None,
        recogniser: Recogniser | None = None,
    ) -> None:
        """Set what all records share. With `may_restore` false, every record is a scanner's report."""
        self.keys = keys
        self.account_id = account_id
        self.now = now
        self.keep_secrets = keep_secrets
        self.format = format_
        self.restore = restore
        self.may_restore = may_restore
        self.repo = repo  # of records that name no repository
        self.commit = commit  # of records that name no commit
        self.recogniser = recogniser  # of the credentials in reports; None: no rule is searched for
        self.unplaced = 0  # records whose source is the report itself

    def build_all(
        self, file_records: Iterable[FileRecord], progress: Callable[[int], None]
    ) -> Iterator[ImportRecord]:
        """Yield the row of each record; report the bytes read now and then, and at the end."""
        bytes_read = 0
        for number, (where, fields, bytes_read) in enumerate(file_records, 1):
            if number % _PROGRESS_EVERY == 0:
                progress(bytes_read)
            imported = _drop_masked(self._add_place(_validate(where, fields)))
            restores = self._restores(imported)
            key = _report_key(imported)  # with the tool's type: a rule of ours may replace it
            record = self._build(where, imported, key, restores=restores)
            address = None if restores or imported.source_type in SERVED_TYPES else _source_of(imported)
            has_key = not restores and (imported.secret is None or imported.fingerprint is not None)
            yield ImportRecord(
                where,
                restores,
                restores and imported.id is not None,
                record,
                address,
                _path_of(imported),
                key,
                (record.finding.id,) if has_key else (),
            )
        progress(bytes_read)

    def _restores(self, imported: ImportedFinding) -> bool:
        """Whether a record replaces all fields of a stored finding: an exported one, or all on request."""
        if not self.may_restore:
            return False
        is_exported = imported.id is not None and imported.fingerprint is None
        return self.restore or (self.format is ImportFormat.OUTCROP and is_exported)

    def _build(self, where: str, imported: ImportedFinding, key: str, *, restores: bool) -> FindingRecord:
        """Return the row of a finding, its credential encrypted, fingerprinted and masked in all texts."""
        if imported.secret is None and not imported.matched_text:
            raise RecordError(where, "is not a finding: it has neither `secret` nor `matched_text`")
        source = _source_of(imported)
        if source is None and not (restores and self.format is ImportFormat.OUTCROP):
            # The report itself is the source, so that importing it again updates the same findings.
            source = self.format.value
            self.unplaced += 1
        path = _path_of(imported)
        hit = None if restores else self._recognise(imported)
        finding_id = self._choose_id(imported, source, path, key, restores=restores)
        finding = self._build_finding(imported, finding_id)
        record = FindingRecord(
            finding if restores else _add_context(finding, path),
            keep_first_seen=imported.first_seen_at is None,
            keep_last_seen=imported.last_seen_at is None,
        )
        if imported.secret is not None:
            record = self._add_secret(record, imported.secret, source, path, hit)
        elif not is_masked(record.finding.matched_text):
            raise RecordError(where, "matched_text is not masked, and there is no `secret` to mask it from")
        return record if restores else score_report(record, places=1, moment=self.now, hit=hit)

    def _add_place(self, imported: ImportedFinding) -> ImportedFinding:
        """Return the finding with the repository and the commit of this import, where it names none.

        A finding that only names its repository also gets the name and the address of its place.
        """
        if imported.commit is None and self.commit is not None:
            imported.commit = self.commit
        if self.repo is not None and _source_of(imported) is None:
            imported.repo = self.repo
        if (repo := imported.repo) is None or (address := normalise_repository(repo)) is None:
            return imported
        imported.repo_full_name = imported.repo_full_name or repository_name(repo)
        if imported.source_url is None and address.startswith("http"):
            base = f"https://{address.split('/')[2]}/{imported.repo_full_name or ''}"
            path = None if imported.file_path is None else imported.file_path.encode("utf-8", "replace")
            imported.source_url = line_address(base, imported.commit, path, imported.line_number or 1)
        return imported

    def _recognise(self, imported: ImportedFinding) -> Hit | None:
        """Set value and type of a reported credential by our rule for it; return the rule's hit, or None.

        Without a credential, those in the title are masked.
        """
        if self.recogniser is None:
            return None
        hit = self.recogniser.recognise(imported)
        if hit is not None:
            imported.secret = reveal(hit.secret)
            imported.pattern = ImportedPattern(name=hit.rule.name, secret_type=hit.rule.secret_type)
        elif imported.secret is None:
            imported.pattern.name = self.recogniser.mask(imported.pattern.name)
        return hit

    def _choose_id(
        self, imported: ImportedFinding, source: str | None, path: str, key: str, *, restores: bool
    ) -> UUID:
        """Return the id to use if the finding is new.

        A report gets an id that follows from its place, its type and the tool's own fingerprint. So the same
        record has the same id again, also if the credential is in one report and left out in another. A
        result of SARIF that names no repository brings such an id.
        """
        if imported.id is not None and restores:
            return imported.id
        is_unplaced = self.format is ImportFormat.SARIF and source == self.format.value
        if imported.legacy_id is not None and is_unplaced:
            return imported.legacy_id
        if restores and (imported.secret is not None or self.format is ImportFormat.OUTCROP):
            return uuid4()
        if imported.secret is not None and imported.fingerprint is None:
            return uuid4()
        return report_id(self.account_id, source or "", path, key)

    def _add_secret(
        self, record: FindingRecord, value: str, source: str | None, path: str, hit: Hit | None
    ) -> FindingRecord:
        """Return the row with the encrypted credential and its digests, and without it in the texts.

        `hit` is that of our rule on the credential, and has the parts that belong to it.
        """
        finding = record.finding
        secret = Secret(value, mask_all=is_password(finding.pattern.secret_type))
        if hit is not None:
            finding, secret = replace(finding, rule=hit.rule.id), hit.secret
        finding = mask_finding(finding, secret)
        fingerprint = self.keys.compute_fingerprint(secret)
        parts = {} if hit is None else hit.companions
        box = self.keys.seal(secret, self.account_id, finding.id, parts) if self.keep_secrets else None
        return replace(
            record,
            finding=replace(finding, matched_text=secret.masked()),
            fingerprint=fingerprint,
            identity=None if source is None else identity(source, path, fingerprint),
            secret_box=box,
            source_path=self._seal_path(path, secret, finding.id),
            verdict_key=self.keys.compute_verdict_key(fingerprint, parts),
        )

    def _seal_path(self, path: str, secret: Secret, finding_id: UUID) -> bytes:
        """Return the path as scans store it, encrypted if it contains the credential."""
        raw = path.encode("utf-8", "surrogateescape")
        if reveal(secret) not in path and MASK not in path:
            return PLAIN_PATH + raw
        return SEALED_PATH + self.keys.seal(Secret(raw.decode("latin-1")), self.account_id, finding_id)

    def _build_finding(self, imported: ImportedFinding, finding_id: UUID) -> Finding:
        """Return the imported finding with defaults for missing times; the credential is not masked yet."""
        first_seen = imported.first_seen_at or imported.last_seen_at or self.now
        last_seen = imported.last_seen_at or first_seen
        is_resolved = imported.status is Status.RESOLVED
        is_open = imported.status in OPEN_STATUSES
        evidence = imported.resolution_evidence or ImportedEvidence()
        resolution = Resolution(evidence.auto_resolved, evidence.resolved_by) if is_resolved else None
        return Finding(
            **{name: _copy_value(getattr(imported, name)) for name in COPIED_FIELDS},
            id=finding_id,
            validation_detail=_mask_values(imported.validation_detail.model_dump(), str),
            matched_text=MASK if imported.matched_text is None else imported.matched_text,
            pattern=CredentialPattern(imported.pattern.name, imported.pattern.secret_type),
            first_seen_at=first_seen,
            last_seen_at=last_seen,
            resolved_at=(imported.resolved_at or last_seen) if is_resolved else None,
            resolution_note=None if is_open else cut_note(imported.resolution_note),
            resolution_evidence=resolution,
        )


def report_id(account_id: int, source: str, path: str, report_key: str) -> UUID:
    """Return the id of a reported finding; `report_key` has the tool's own fingerprint."""
    return uuid5(_NAMESPACE, "\0".join((str(account_id), source, path, report_key)))


def _report_key(imported: ImportedFinding) -> str:
    """Return what identifies a report at its place: type and fingerprint, both as the tool gives them."""
    fingerprint = imported.fingerprint or f"{imported.matched_text}:{imported.line_number}"
    return f"{imported.pattern.secret_type}\0{fingerprint}"


def _path_of(imported: ImportedFinding) -> str:
    """Return the path that identifies the place of a finding in its source."""
    return urlsplit(imported.source_url or "").path if imported.file_path is None else imported.file_path


def _source_of(imported: ImportedFinding) -> str | None:
    """Return the address of a finding's source: of its repository or site; None if the record names none."""
    return normalise_repository(imported.repo) or source_of(
        imported.source_type, imported.repo_full_name, imported.source_url
    )


def _drop_masked(imported: ImportedFinding) -> ImportedFinding:
    """Return the finding without a value that its tool has masked: that is no credential."""
    if imported.secret is not None and is_masked(imported.secret):
        imported.secret, imported.parts, imported.matched_text = None, [], imported.secret
    return imported


def _copy_value(value: Any) -> Any:
    """Return the value of a field; lines in ascending order, each once."""
    return tuple(sorted(set(value))) if isinstance(value, tuple) else value


def _validate(where: str, fields: dict[str, Any]) -> ImportedFinding:
    """Return the validated fields of a record; raise RecordError with the first problem, not its value."""
    try:
        return validate_finding(fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise RecordError(where, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _add_context(finding: Finding, path: str) -> Finding:
    """Return a reported finding with its context; the report's own is kept, and none is made up."""
    if finding.context is not None or not path:
        return finding
    context = decide_context(
        path,
        is_password=is_password(finding.pattern.secret_type),
        is_served=finding.source_type in SERVED_TYPES,
    )
    return replace(finding, context=context)


def mask_finding(finding: Finding, secret: Secret) -> Finding:
    """Return the finding with its credential masked in all texts that may contain it.

    The repository's name stays: it identifies the source. URL and path stay if the credential may be an
    ordinary word of them.
    """
    mask, type_ = secret.masked_within, finding.pattern.secret_type
    in_path = hides_in_paths(reveal(secret), is_named="generic" not in type_, is_password=is_password(type_))
    mask_path = mask if in_path else str
    return replace(
        finding,
        validation_detail=_mask_values(finding.validation_detail, mask),
        source_url=_mask_optional(finding.source_url, mask_path),
        file_path=_mask_optional(finding.file_path, mask_path),
        pattern=finding.pattern._replace(name=mask(finding.pattern.name)),
        author=_mask_optional(finding.author, mask),
        resolution_note=cut_note(_mask_optional(finding.resolution_note, mask)),
    )


def _mask_optional(text: str | None, mask: Callable[[str], str]) -> str | None:
    """Apply `mask` to a text; None stays None."""
    return None if text is None else mask(text)


def _mask_values(value: Any, mask: Callable[[str], str]) -> Any:
    """Apply `mask` to all strings in a JSON value, and replace NUL, which PostgreSQL cannot store."""
    if isinstance(value, str):
        return mask(value).replace("\0", "\ufffd")
    if isinstance(value, list):
        return [_mask_values(item, mask) for item in value]
    if isinstance(value, dict):
        return {_mask_values(key, mask): _mask_values(item, mask) for key, item in value.items()}
    return value
