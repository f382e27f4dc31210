"""Look for the credential of a stored finding in a present text of its place."""

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.scan import scan_content
from outcrop.services.pipeline.context import RunContext, SourceKey
from outcrop.services.pipeline.stored.values import open_value
from outcrop.store.runs.sources import StoredFinding


def contains_credential(
    context: RunContext, key: SourceKey, stored: StoredFinding, body: bytes
) -> bool | None:
    """Whether a body contains the credential of a finding, literally or as the rules detect it.

    None if it is not found and its value is not stored: the rules may have changed.
    """
    value = open_value(context, key, stored)
    if value is not None and value.encode("utf-8", "surrogateescape") in body:
        return True
    hits = scan_content(context.ruleset, body, Confidence.LOW).hits
    if any(context.keys.compute_fingerprint(hit.secret) == stored.fingerprint for _, hit in hits):
        return True
    return None if value is None else False
