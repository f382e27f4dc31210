"""Back up under load and restore; upgrade the rows of every earlier schema with the real commands."""

import asyncio
import json
import time

import psycopg

from outcrop.store import schema
from outcrop.store.db import connect
from outcrop.store.embedded.server import embedded_postgres
from prove.load import SLUG, open_load
from prove.service import Service, open_service
from prove.trial import Report, Setting
from tests.upgrade.generate_rows import FIRST, SECRET_KEY, rows_file


def try_backup(setting: Setting, report: Report) -> None:
    """Compare a restored account with the original, and check every upgrade."""
    rng = setting.random()
    with (
        open_load(setting.folder / "load", setting.seed) as load,
        open_service(
            setting.folder / "service", OUTCROP_SECRET_KEY="a key of the trials only", **load.environment
        ) as service,
    ):
        service.serve()
        load.connect(service, rng, findings=200 if setting.short else 2_000)
        load.resume()
        deadline, number = setting.deadline(), 0
        while number == 0 or (time.monotonic() < deadline and not setting.short):
            number += 1
            file = str(setting.folder / f"under-load-{number}.outcrop")
            service.run("backup", file)
            if not setting.short:
                _restore(setting, report, file, f"restored-{number}", None)
        load.verify(service, report)
        file = str(setting.folder / "quiet.outcrop")
        service.run("backup", file)
        _restore(setting, report, file, "restored", _exported(service))
    _try_upgrades(setting, report)


def _exported(service: Service) -> list[str]:
    """Return the lines of the account's export, sorted."""
    return sorted(service.run("export", "--account", SLUG, "--format", "jsonl").splitlines())


def _restore(setting: Setting, report: Report, file: str, name: str, expected: list[str] | None) -> None:
    """Restore a file into an empty data folder; compare its findings, or at least let `doctor` check it."""
    with open_service(setting.folder / name, OUTCROP_SECRET_KEY="a key of the trials only") as fresh:
        fresh.run("restore", file)
        report.count("restores")
        checks = fresh.command("doctor")
        report.check(_all_ok(checks), f"{name}: doctor says {checks}")
        if expected is not None:
            lines = _exported(fresh)
            report.check(
                lines == expected, f"{len(set(lines) ^ set(expected))} findings differ after the restore"
            )
        else:
            ids = [json.loads(line)["id"] for line in _exported(fresh)]
            report.check(len(ids) == len(set(ids)) > 0, f"{len(ids)} findings, {len(set(ids))} ids")


def _all_ok(checks: object) -> bool:
    """Whether no check of `doctor` failed."""
    rows = checks if isinstance(checks, list) else []
    return bool(rows) and all(row["ok"] for row in rows)


def _try_upgrades(setting: Setting, report: Report) -> None:
    """Load the rows of earlier schemas into databases of their own and upgrade them with the command."""
    versions = list(range(FIRST, schema.newest_version() + 1))
    if setting.short:
        versions = [setting.random().choice(versions)]
    with embedded_postgres(setting.folder / "postgres") as cluster:
        for version in versions:
            url = _load_rows(cluster, version)
            with open_service(
                setting.folder / f"v{version}", OUTCROP_DATABASE_URL=url, OUTCROP_SECRET_KEY=SECRET_KEY
            ) as service:
                before = _count(url)
                service.run("migrate")
                after = _count(url)
                lost = {table: n for table, n in before.items() if after.get(table, 0) < n}
                report.check(not lost, f"upgrade from {version}: rows are lost in {lost}")
                report.count("upgrades")


def _load_rows(cluster: str, version: int) -> str:
    """Create a database with the schema and rows of a version; return its address."""
    name = f"upgrade_{version}"
    with psycopg.connect(cluster, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}".encode())
    url = psycopg.conninfo.make_conninfo(cluster, dbname=name)

    async def load() -> None:
        async with await connect(url) as db, db.transaction():
            await schema.create_schema(db, version)
            await db.execute("SET LOCAL session_replication_role = replica")  # derived rows are in the file
            await db.execute(rows_file(version).read_bytes())

    asyncio.run(load())
    return url


def _count(url: str) -> dict[str, int]:
    """Return the number of rows of each table that people's data is in."""
    derived = {"migrations", "rollups", "rollup_deltas", "finding_search", "finding_services"}
    with psycopg.connect(url) as db:
        names = [
            name for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        return {
            name: (db.execute(f'SELECT count(*) FROM "{name}"'.encode()).fetchone() or (0,))[0]
            for name in names
            if name not in derived and not name.startswith("procrastinate_")
        }
