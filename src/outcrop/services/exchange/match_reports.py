"""Find the finding that a scanner's report is about: by its credential, or by the tool's own fingerprint.

The same leak may come once with its credential and once without it, in this order or the other one. Then both
reports have the same fingerprint of the tool, and so the same report id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID, uuid4

from outcrop.domain.place import SEALED_PATH
from outcrop.store.findings.record import FindingRecord
from outcrop.store.keyring import Keyring


class Match(NamedTuple):
    """The id of the finding that a report is about."""

    id: UUID
    is_known: bool = False  # by its credential: the finding has it already


@dataclass(slots=True)
class ReportMatcher:
    """The ids of known findings; those of matched reports are added."""

    by_identity: dict[bytes, UUID]
    by_report: dict[UUID, UUID]  # by report id
    bare: set[UUID]  # findings without a credential

    @classmethod
    def of_stored(
        cls, by_identity: dict[bytes, UUID], stored: Mapping[UUID, bytes | None]
    ) -> "ReportMatcher":
        """Return a matcher of stored findings; `stored` has the fingerprints of those with report ids."""
        bare = {id_ for id_, fingerprint in stored.items() if fingerprint is None}
        return cls(by_identity, {id_: id_ for id_ in stored}, bare)

    def match(self, record: FindingRecord, report_ids: Sequence[UUID]) -> Match:
        """Return the finding that a report is about, which may be a new one.

        A credential is that of the finding at its place. Otherwise it is that of the finding which the same
        report without the credential has added, and otherwise new. A tool may give two credentials of one
        line the same fingerprint: the second one is another finding.
        """
        reported = next((self.by_report[id_] for id_ in report_ids if id_ in self.by_report), None)
        if record.identity is None:
            match = Match(record.finding.id if reported is None else reported)
            if reported is None:
                self.bare.add(match.id)
        elif (stored := self.by_identity.get(record.identity)) is not None:
            match = Match(stored, is_known=True)
        elif reported is None:
            match = Match(record.finding.id)
        else:
            match = Match(reported if reported in self.bare else uuid4())
        if record.identity is not None:
            self.by_identity[record.identity] = match.id
            self.bare.discard(match.id)
        for id_ in report_ids:
            self.by_report.setdefault(id_, match.id)
        return match


def with_id(keys: Keyring, account_id: int, record: FindingRecord, match: Match) -> FindingRecord:
    """Return the record with the id of the finding that it is about.

    What is encrypted is bound to a finding's id. A finding that has the credential already keeps its own.
    """
    old, id_ = record.finding.id, match.id
    if id_ == old:
        return record
    record = replace(record, finding=replace(record.finding, id=id_))
    if match.is_known:
        return replace(record, secret_box=None, source_path=None)
    box, path = record.secret_box, record.source_path
    if box is not None:
        secret, parts = keys.open_with_companions(box, account_id, old, mask_all=True)
        box = keys.seal(secret, account_id, id_, parts)
    if path is not None and path.startswith(SEALED_PATH):
        sealed = path.removeprefix(SEALED_PATH)
        path = SEALED_PATH + keys.seal(keys.open(sealed, account_id, old, mask_all=True), account_id, id_)
    return replace(record, secret_box=box, source_path=path)
