"""Test what `/readyz` reports: room on the volume of the database, and a small write."""

import asyncio
from pathlib import Path

import psycopg
from structlog.testing import capture_logs

from outcrop.services.readiness import MIN_FREE_BYTES, Readiness, ReadinessCheck
from outcrop.store import db as database
from outcrop.store.disk import count_free_bytes
from tests.support.backend import Backend, running_server


def check(url: str, min_free_bytes: int = 0, times: int = 1) -> Readiness:
    async def main() -> Readiness:
        async with database.open_pool(url, size=1, statement_timeout=4) as pool:
            readiness = ReadinessCheck(pool, min_free_bytes)
            return [await readiness.run() for _ in range(times)][-1]

    return asyncio.run(main())


def test_a_database_with_room_is_ready(backend: Backend) -> None:
    url = backend.settings.database_url or ""
    assert check(url, times=3) is Readiness.OK
    assert backend.sql("SELECT count(*) FROM pg_class WHERE relname = 'probe'") == [(0,)]


def test_a_volume_with_less_room_than_required_is_reported(backend: Backend) -> None:
    """The free space of the volume is real; the limit is set above it."""
    free = count_free_bytes(Path("/"))
    assert free is not None
    assert MIN_FREE_BYTES == 100 << 20
    with (
        capture_logs() as logs,
        running_server(backend.settings, min_free_bytes=1 << 60) as server,
        Backend(backend.settings, backend.keys, server.base_url) as own,
    ):
        answer = own.client().get("/readyz")
        assert own.client().get("/healthz").status_code == 200
    assert (answer.status_code, answer.json()) == (503, {"status": "disk_full"})
    assert "disk_full" in [line["event"] for line in logs]


def test_a_write_that_fails_is_reported(backend: Backend) -> None:
    url = backend.settings.database_url or ""
    read_only = psycopg.conninfo.conninfo_to_dict(url)
    name = read_only["dbname"]
    backend.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        with capture_logs() as logs:
            assert check(url) is Readiness.DISK_FULL
        assert [line["error"] for line in logs] == ["ReadOnlySqlTransaction"]
    finally:
        with psycopg.connect(url, autocommit=True, options="-c default_transaction_read_only=off") as db:
            db.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
    assert check(url) is Readiness.OK


def test_a_folder_that_this_process_does_not_see_has_no_free_space_to_report(tmp_path: Path) -> None:
    assert count_free_bytes(tmp_path / "elsewhere") is None
