"""`outcrop doctor`: check the database and the machine, and say what is wrong. It contacts no other host."""

import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import typer

from outcrop.cli.env_file import load
from outcrop.cli.session import AsJson, run, show_all
from outcrop.domain import clock
from outcrop.domain.errors import OutcropError
from outcrop.logs import set_up_logs
from outcrop.net.guard import Egress
from outcrop.net.tls import tls_context
from outcrop.runtime import open_database, operator_key
from outcrop.sandbox import find_missing
from outcrop.scanner.engine.load import load_ruleset
from outcrop.services import maintenance
from outcrop.services.maintenance import HealthCheck
from outcrop.services.readiness import MIN_FREE_BYTES
from outcrop.settings import Settings, is_loopback
from outcrop.settings_sources import LoadedSettings
from outcrop.sources.workspace import cache_folder
from outcrop.store import db as database
from outcrop.store import disk

OLDEST_GIT = (2, 30)


def doctor(as_json: AsJson = False) -> None:
    """Check the database, its counts and scores, the settings, git, the rules, clock, disk and sandbox."""
    try:
        loaded = load()
    except OutcropError as error:
        wrong = HealthCheck("settings", ok=False, detail=error.message)
        _finish([wrong], as_json=as_json, reason=error.message)
        return
    settings = loaded.settings
    set_up_logs(settings.log_level, settings.log_format)
    checks = _check_database(settings)
    is_reached = checks[0].ok
    checks += [
        _check_settings(loaded),
        _check_git(),
        _guarded("rules", lambda: _describe_rules(settings)),
        _guarded("egress", lambda: _describe_egress(settings)),
        _check_disk(settings),
        _check_sandbox(),
    ]
    _finish(checks, as_json=as_json, reason=None if is_reached else checks[0].detail)


def _finish(checks: list[HealthCheck], *, as_json: bool, reason: str | None = None) -> None:
    """Print the checks; exit with 2 if one failed. `reason` is printed on stderr too."""
    records = [{"check": check.name, "ok": check.ok, "detail": check.detail} for check in checks]
    show_all(records, ["check", "ok", "detail"], as_json=as_json)
    if reason is not None:
        typer.echo(f"outcrop: {reason}", err=True)
    if not all(check.ok for check in checks):
        raise typer.Exit(2)


def _check_database(settings: Settings) -> list[HealthCheck]:
    """Return the checks of the database; only a failed one if it cannot be reached."""

    async def main() -> list[HealthCheck]:
        with open_database(settings) as url:
            async with await database.connect(url) as db:
                return await maintenance.run_health_checks(
                    db, operator_key(settings), settings.keep_secrets, now=clock.now()
                )

    try:
        return run(main)
    except database.UNAVAILABLE as error:
        return [HealthCheck("database", ok=False, detail=database.describe_unavailability(error))]
    except OutcropError as error:
        return [HealthCheck("database", ok=False, detail=error.message)]


def _check_settings(loaded: LoadedSettings) -> HealthCheck:
    """Check that every OUTCROP_* variable is a setting, and that `outcrop serve` accepts the address."""
    settings, problems = loaded.settings, [text for text in loaded.warnings if "is not a setting" in text]
    https = settings.base_url is not None and settings.base_url.startswith("https://")
    if not is_loopback(settings.host) and not https:
        problems.append("OUTCROP_HOST is not loopback: OUTCROP_BASE_URL must be https, or --tls-cert given")
    fine = f"{len(loaded.origins)} set, all known"
    return HealthCheck("settings", ok=not problems, detail="; ".join(problems) or fine)


def _check_git() -> HealthCheck:
    """Check that git runs and is not too old."""
    oldest = ".".join(map(str, OLDEST_GIT))
    if (program := shutil.which("git")) is None:
        return HealthCheck("git", ok=False, detail="not installed: repositories cannot be scanned")
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return HealthCheck("git", ok=False, detail=f"does not run ({type(error).__name__})")
    found = re.search(r"(\d+)\.(\d+)[\w.]*", done.stdout)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        return HealthCheck("git", ok=False, detail=f"{done.stdout.strip()}: {oldest} or newer is needed")
    return HealthCheck("git", ok=True, detail=found[0])


def _guarded(name: str, describe: Callable[[], str]) -> HealthCheck:
    """Return a check that fails if `describe` raises."""
    try:
        return HealthCheck(name, ok=True, detail=describe())
    except OutcropError as error:
        return HealthCheck(name, ok=False, detail=error.message)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return HealthCheck(name, ok=False, detail=f"{getattr(error, 'filename', None) or name}: {reason}")


def _describe_rules(settings: Settings) -> str:
    """Load the built-in rules and the operator's, and return how many there are."""
    ruleset = load_ruleset([settings.rules] if settings.rules else [], cache=cache_folder())
    return f"{len(ruleset.rules)} rules" + (f", with those in {settings.rules}" if settings.rules else "")


def _describe_egress(settings: Settings) -> str:
    """Read the certificates, bind the source address, and return what may be connected to."""
    egress = Egress.from_settings(settings)
    try:
        tls_context(egress)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "OUTCROP_EGRESS_CA_FILE") from None
    if egress.source_address is not None:
        family = socket.AF_INET6 if ":" in egress.source_address else socket.AF_INET
        with socket.socket(family) as probe:
            try:
                probe.bind((egress.source_address, 0))
            except OSError as error:
                raise OSError(error.errno, error.strerror, "OUTCROP_EGRESS_SOURCE") from None
    if egress.closed:
        return f"closed, except for {len(egress.connect_to)} addresses of OUTCROP_EGRESS_CONNECT_TO"
    private = f" and {', '.join(settings.egress_allow)}" if settings.egress_allow else ""
    return f"public addresses{private}"


def _check_disk(settings: Settings) -> HealthCheck:
    """Check the free space of the data folder and of the folders that repositories are cloned into."""
    folders = {"data": settings.data_dir, "cache": cache_folder(), "temporary": Path(tempfile.gettempdir())}
    free: dict[str, int] = {}
    for name, folder in folders.items():
        for existing in _with_parents(folder):
            if (count := disk.count_free_bytes(existing)) is not None:
                free[name] = count >> 20
                break
    low = [name for name, megabytes in free.items() if megabytes < MIN_FREE_BYTES >> 20]
    detail = ", ".join(f"{name} folder: {megabytes:,} MB free" for name, megabytes in free.items())
    return HealthCheck("disk", ok=not low, detail=detail)


def _with_parents(folder: Path) -> Iterator[Path]:
    """Yield the folder and its parents that exist, the innermost first."""
    for path in (folder, *folder.parents):
        with suppress(OSError):
            if path.is_dir():
                yield path


def _check_sandbox() -> HealthCheck:
    """Return what the sandbox leaves out; scans work without it."""
    missing = find_missing()
    detail = f"incomplete: {'; '.join(missing)}" if missing else "git and the parsers have few rights"
    return HealthCheck("sandbox", ok=True, detail=detail)
