"""Test `outcrop incidents …` on the real service."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from outcrop.client import AsyncClient, Client
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.members import add_member

SECRET = "made-up-" + "Zx9" * 8


def outcrop(backend: Backend, tenant: Tenant, *arguments: str) -> subprocess.CompletedProcess[str]:
    named = {
        "OUTCROP_URL": backend.base_url,
        "OUTCROP_API_KEY": tenant.key,
        "OUTCROP_DATA_DIR": "/nonexistent/data",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTCROP_")}
    return subprocess.run(
        [sys.executable, "-m", "outcrop", *arguments],
        env=environment | named,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path("/"),
    )


def test_incidents_are_listed_shown_assigned_and_resolved(backend: Backend) -> None:
    tenant = backend.tenant()
    lines = [make_line(secret=SECRET, file_path=f"{n}.py") for n in range(2)]
    refusing = make_line(status="false_positive", composite_score=1.0)
    backend.import_(tenant.account, *lines, refusing)
    id_, other = (tenant.finding(line["id"])["incident_id"] for line in (lines[0], refusing))
    address = add_member(backend, tenant.account).email
    listed = outcrop(backend, tenant, "incidents", "list", "--status", "open", "--json")
    assert (listed.returncode, [entry["id"] for entry in json.loads(listed.stdout)]) == (0, [id_])
    table = outcrop(backend, tenant, "incidents", "list")
    assert (table.returncode, "2 of 2" in table.stdout) == (0, True)
    assigned = outcrop(backend, tenant, "incidents", "assign", id_, address)
    assert (assigned.returncode, address in assigned.stdout) == (0, True)
    assert outcrop(backend, tenant, "incidents", "assign", id_, "no@example.com").returncode == 2
    shown = outcrop(backend, tenant, "incidents", "show", id_, "--json")
    assert (shown.returncode, json.loads(shown.stdout)["assignee"]) == (0, address)
    options = ("--assignee", address, "--incident-id", id_, "--json")
    places = outcrop(backend, tenant, "findings", "list", *options)
    assert {place["id"] for place in json.loads(places.stdout)} == {line["id"] for line in lines}
    done = outcrop(backend, tenant, "incidents", "resolve", id_, "--note", "rotated", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (
        0,
        [{"id": id_, "status": "closed", "changed": 2, "unchanged": 0, "refused": 0}],
    )
    partly = outcrop(backend, tenant, "incidents", "resolve", other, str(uuid4()), id_, "--json")
    assert (partly.returncode, [entry["refused"] for entry in json.loads(partly.stdout)]) == (1, [1, 0])
    assert outcrop(backend, tenant, "incidents", "show", str(uuid4())).returncode == 1
    assert outcrop(backend, tenant, "incidents", "show", "x").returncode == 2


def test_both_clients_read_triage_assign_and_comment(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, *(make_line(secret=SECRET, file_path=f"{n}.py") for n in range(2)))
    with Client(backend.base_url, tenant.key) as client:
        (incident,) = client.iterate_incidents(status="open")
        id_ = incident["id"]
        assert (client.list_incidents().total, client.get_incident(id_)) == (1, incident)
        comment = client.add_comment(id_, "seen")
        assert client.list_comments(id_).data == [comment]
        assert client.assign_incident(id_, None)["assignee"] is None

    async def close() -> int:
        async with AsyncClient(backend.base_url, tenant.key) as client:
            done = await client.triage_incident(id_, "restrict", "known")
            assert [entry["id"] async for entry in client.iterate_incidents(status="closed")] == [id_]
            return done["changed"]

    assert asyncio.run(close()) == 2
