"""Decrypt the credential and the path of a stored finding."""

from outcrop.domain.place import SEALED_PATH
from outcrop.domain.secret import reveal
from outcrop.services.pipeline.context import RunContext, SourceKey
from outcrop.store.keyring import DamagedValueError
from outcrop.store.runs.sources import StoredFinding


def open_value(context: RunContext, key: SourceKey, stored: StoredFinding) -> str | None:
    """Return the decrypted credential of a stored finding; None if it is not stored or is damaged."""
    if stored.box is None:
        return None
    try:
        return reveal(context.keys.open(stored.box, key.account_id, stored.finding.id, mask_all=True))
    except DamagedValueError:
        return None


def open_path(context: RunContext, key: SourceKey, stored: StoredFinding) -> bytes:
    """Return the unmasked path of a stored finding, decrypted if it is stored encrypted."""
    if stored.path[:1] != SEALED_PATH:
        return stored.path[1:]
    path = context.keys.open(stored.path[1:], key.account_id, stored.finding.id, mask_all=True)
    return reveal(path).encode("latin-1")
