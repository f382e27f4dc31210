"""Read and write what the options of `outcrop scan` leave out: baselines and allow files."""

import codecs
import hashlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from outcrop.cli.scan_output import write_whole
from outcrop.domain.errors import BadInputError
from outcrop.domain.line import one_line
from outcrop.services.local_scan import ScanReport
from outcrop.services.local_scan.allowed import (
    AllowEntry,
    KnownFindings,
    extend_allow_file,
    parse_allow_file,
)

_SHA1 = "sha1:"  # begins the fingerprint of a finding of detect-secrets


class BaselineFile(NamedTuple):
    """The findings of a baseline: by our own fingerprints, or those of another scanner."""

    fingerprints: list[str]
    others: KnownFindings


def read_baseline(file: Path | None) -> BaselineFile:
    """Return the findings of an earlier result, or of a report of another scanner."""
    if file is None:
        return BaselineFile([], KnownFindings())
    from outcrop.domain.reports import sarif  # noqa: PLC0415 - few scans have a baseline

    text = _read(file, "--baseline")
    try:
        records = _records(text.removeprefix(codecs.BOM_UTF8))
        if len(records) == 1 and "runs" in records[0]:
            return BaselineFile(sarif.fingerprints(records[0]), KnownFindings())
        if not any(key in record for record in records for key in ("RuleID", "SourceMetadata", "finding")):
            return BaselineFile(["" + record["fingerprint"] for record in records], KnownFindings())
    except (ValueError, TypeError, LookupError, AttributeError):
        pass
    try:
        known = _read_report(text)
    except (BadInputError, LookupError, TypeError):
        raise BadInputError(
            f"--baseline {file}: not a result of outcrop scan in json, jsonl or sarif, "
            "and no report of a scanner that outcrop import can read"
        ) from None
    return BaselineFile([], known)


def _records(text: bytes) -> list[Any]:
    """Return the records of a JSON list, a SARIF log or JSON Lines."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    return document if isinstance(document, list) else [document]


def _read_report(text: bytes) -> KnownFindings:
    """Return the findings of another scanner's report; raise BadInputError or LookupError if it is none."""
    # Imported late: few scans have such a baseline.
    from outcrop.services.exchange.formats import ImportFormat, RecordError, read_records  # noqa: PLC0415

    values, places, sha1 = set(), set(), set()
    format_, records = read_records(io.BytesIO(text), ImportFormat.AUTO)
    if format_ is ImportFormat.OUTCROP:  # our own results have fingerprints, and were read before
        raise LookupError
    if format_ is ImportFormat.SARIF and any("results" not in run for run in orjson.loads(text)["runs"]):
        raise LookupError
    try:
        for _, record, _ in records:
            path, line = record.get("file_path"), record.get("line_number")
            secret, fingerprint = record.get("secret"), str(record.get("fingerprint"))
            if not isinstance(path, str):
                continue
            if isinstance(secret, str) and secret:
                digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
                values.add((path, digest))
            elif fingerprint.startswith(_SHA1):
                sha1.add((path, fingerprint.removeprefix(_SHA1)))
            elif isinstance(line, int):
                places.add((path, line))
    except RecordError as error:
        raise LookupError from error
    return KnownFindings(values, places, sha1)


def read_allow_file(file: Path | None) -> frozenset[AllowEntry]:
    """Return the entries of the file of `--allow`; raise BadInputError if it is none."""
    return frozenset() if file is None else parse_allow_file(_read(file, "--allow"), f"--allow {file}")


def check_allow_file(file: Path | None) -> None:
    """Raise BadInputError, before a long scan, if the file of `--allow-all` cannot be extended."""
    if file is not None and not file.parent.is_dir():
        raise BadInputError(f"--allow-all {file}: its folder does not exist")
    if file is not None and file.exists():
        parse_allow_file(_read(file, "--allow-all"), f"--allow-all {file}")


def write_allow_file(file: Path | None, report: ScanReport) -> None:
    """Add entries for what was found to the file of `--allow-all`; what it has already, stays."""
    if file is None:
        return
    try:
        old = file.read_bytes() if file.exists() else b""
        found = ((finding.hit, finding.fields) for finding in report.findings)
        write_whole(file, extend_allow_file(old, found, f"--allow-all {file}"))
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        report.failures.append(f"--allow-all {one_line(str(file))}: cannot be written: {reason}")


def _read(file: Path, option: str) -> bytes:
    """Return the content of an option's file; raise BadInputError if it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadInputError(f"{option} {file}: {error.strerror}") from None
