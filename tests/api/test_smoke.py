"""The thin path through all layers."""

from tests.support.backend import Backend
from tests.support.factories import make_line


def test_an_imported_finding_is_listed_read_and_resolved(backend: Backend) -> None:
    tenant = backend.tenant()
    line = make_line()
    backend.import_(tenant.account, line)
    listed = tenant.get("/findings").json()
    assert listed["meta"] == {"total": 1, "page": 1, "per_page": 25, "pages": 1}
    assert listed["data"] == [tenant.finding(line["id"])]
    assert tenant.post(f"/findings/{line['id']}/resolve", note="rotated").json() == {
        "data": {"id": line["id"], "status": "resolved"}
    }
    assert tenant.finding(line["id"])["resolution_note"] == "rotated"
    assert tenant.get("/findings", status="active").json()["meta"]["total"] == 0
