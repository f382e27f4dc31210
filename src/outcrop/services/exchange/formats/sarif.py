"""Translate SARIF 2.1.0 of any tool: its results have a place and a rule, sometimes also the text there."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid5

import orjson

from outcrop.domain.errors import BadInputError
from outcrop.domain.secret import MASK
from outcrop.limits import SARIF_WAITING_BYTES
from outcrop.services.exchange.formats.fields import get_dict, get_dicts, get_text, to_relative
from outcrop.services.exchange.json_array import ITEM, Element, read_elements_at
from outcrop.sources.repository_address import repository_name

VERSION = "2.1.0"
_RESULTS, _PROVENANCE, _BASES = range(3)
_PATHS = (
    ("runs", ITEM, "results", ITEM),
    ("runs", ITEM, "versionControlProvenance", ITEM),
    ("runs", ITEM, "originalUriBaseIds"),
)
# Namespace of the ids. It never changes, so that importing a result again updates the same finding.
_NAMESPACE = UUID("4f5b8c7e-41f6-5d0f-9d3e-6e2f2b8a7c11")


def read(file: BinaryIO) -> Iterator[tuple[Element, dict[str, Any]]]:
    """Yield the results of a log, each with the fields of its run that name the repository.

    These fields may follow the results. The fields of a file that can be read twice are read first. Results
    from a pipe wait for the end of their run, at most SARIF_WAITING_BYTES of them.
    """
    known: dict[int, dict[str, Any]] = {}
    if is_seekable := file.seekable():
        start = file.tell()
        for element in read_elements_at(file, _PATHS):
            _add_to_run(known, element)
        file.seek(start)
    waiting: list[Element] = []
    size = overflowed = 0
    for element in read_elements_at(file, _PATHS):
        if waiting and waiting[-1].indexes[0] != element.indexes[0]:
            yield from _with_runs(waiting, known)
            waiting, size, overflowed = [], 0, 0
        if element.path != _RESULTS:
            if overflowed:
                raise BadInputError(
                    "the repository follows its results: pass the report as a file, or pass --repo"
                )
            _add_to_run(known, element)
            continue
        waiting.append(element)
        size += len(element.text)
        if is_seekable or size > SARIF_WAITING_BYTES:
            overflowed = not is_seekable and not known.get(element.indexes[0])
            yield from _with_runs(waiting, known)
            waiting, size = [], 0
    yield from _with_runs(waiting, known)


def _with_runs(
    elements: list[Element], runs: dict[int, dict[str, Any]]
) -> Iterator[tuple[Element, dict[str, Any]]]:
    """Yield each result with the fields of its run."""
    return ((element, runs.get(element.indexes[0], {})) for element in elements)


def _add_to_run(runs: dict[int, dict[str, Any]], element: Element) -> None:
    """Add the repository or the base addresses of a run to its fields; the first repository counts."""
    if element.path == _RESULTS:
        return
    run = runs.setdefault(element.indexes[0], {})
    try:
        value = orjson.loads(element.text)
    except orjson.JSONDecodeError:
        raise BadInputError(f"run {element.indexes[0] + 1} is not JSON") from None
    if element.path == _BASES:
        run["bases"] = value
    else:
        run.setdefault("provenance", []).append(value)


def translate(record: dict[str, Any], run: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return a result of a run as our own fields; None if it is not a result."""
    rule = record.get("ruleId") or get_dict(record, "rule").get("id")
    locations = record.get("locations")
    if "message" not in record or not (rule or locations):
        return None
    rule = str(rule or "unknown")
    location = next(get_dicts(record, "locations"), {})
    artifact = get_dict(location, "physicalLocation", "artifactLocation")
    region = get_dict(location, "physicalLocation", "region")
    uri = get_text(artifact, "uri")
    fingerprints = sorted(
        str(item)
        for name in ("fingerprints", "partialFingerprints")
        for item in get_dict(record, name).items()
    )
    column = region.get("startColumn")
    place = [rule, str(uri), str(region.get("startLine")), str(column), *fingerprints]
    address = uri if uri is not None and uri.startswith(("https://", "http://")) else None
    repository, commit, folder = _repository(record, location, artifact, run)
    path = None if uri is None or address else to_relative(folder + unquote(uri).removeprefix("file://"))
    snippet = get_text(get_dict(region, "snippet"), "text")
    return [
        {
            "fingerprint": hashlib.sha256(json.dumps(fingerprints or place).encode()).hexdigest(),
            "legacy_id": str(uuid5(_NAMESPACE, "\0".join(place))),
            "matched_text": MASK,  # not the message or the snippet, which may contain the credential
            "snippet": snippet,
            "pattern": {"name": rule, "secret_type": rule},
            "source_type": "commit" if commit else "repo",
            "source_url": address,
            "repo": repository,
            "repo_full_name": repository_name(repository),
            "file_path": path,
            "line_number": region.get("startLine"),
            "commit": commit,
        }
    ]


def _repository(
    record: dict[str, Any], location: dict[str, Any], artifact: dict[str, Any], run: dict[str, Any]
) -> tuple[str | None, str | None, str]:
    """Return the repository's address, the commit, and the folder in it to which the path is relative.

    They are in the run's `versionControlProvenance` or `originalUriBaseIds`, or in the properties of other
    scanners.
    """
    base_id = get_text(artifact, "uriBaseId")
    base = get_text(get_dict(run, "bases", base_id or ""), "uri") or ""
    entries = [entry for entry in run.get("provenance", []) if isinstance(entry, dict)]
    mapped = (e for e in entries if base_id and get_text(get_dict(e, "mappedTo"), "uriBaseId") == base_id)
    entry = next(mapped, entries[0] if entries else {})
    folder = get_text(get_dict(entry, "mappedTo"), "uri") or ""
    git = get_dict(location, "properties", "git_metadata")
    repository = get_text(entry, "repositoryUri") or get_text(git, "repository_url")
    commit = get_text(get_dict(git, "commit"), "id")
    properties = get_dict(record, "properties")
    commit = (
        commit
        or get_text(properties, "commit")
        or get_text(get_dict(record, "partialFingerprints"), "commitSha")
    )
    if repository is None and urlsplit(base).scheme in {"https", "http", "ssh", "git"}:
        repository = base
    return repository, commit, f"{folder.rstrip('/')}/" if folder and not urlsplit(folder).scheme else ""
