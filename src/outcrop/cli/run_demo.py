"""Run the whole service with a local example, and print a working login, API key and `curl` line."""

import asyncio
import hashlib
import urllib.request
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError

from outcrop.cli.env_file import load
from outcrop.cli.listen import listen
from outcrop.cli.serve import ListenOptions, supervise
from outcrop.cli.session import run
from outcrop.demo import repositories, site
from outcrop.demo.account import (
    SLUG,
    DemoLogin,
    add_targets,
    create_login,
    find_account,
    send_test_event,
    set_webhook,
)
from outcrop.demo.stand_ins import StandIns, open_stand_ins
from outcrop.demo.story import all_sent, play_story, total
from outcrop.domain import clock
from outcrop.domain.account import Account
from outcrop.domain.errors import OperatorError
from outcrop.domain.target import Target
from outcrop.logs import set_up_logs
from outcrop.runtime import open_database, open_session
from outcrop.settings import Settings

_START_TIMEOUT = 60.0  # seconds; the first start also compiles the rules


def run_demo(port: int) -> None:
    """Run the service and the example until somebody stops it."""
    settings = demo_settings()
    set_up_logs(settings.log_level, settings.log_format)
    run(lambda: _demo(settings, ListenOptions(port=port)))


def demo_settings() -> Settings:
    """Return the operator's settings, by default with the demo's own data folder and quiet logs."""
    loaded = load("demo")
    settings = replace(loaded.settings, base_url=None)
    return settings if "log_level" in loaded.origins else replace(settings, log_level="warning")


async def _demo(settings: Settings, listening: ListenOptions) -> None:
    """Start the stand-ins, create the example account, run the service and play the example story."""
    (
        await listen(listening.host, listening.port)
    ).close()  # fail now if the port is taken, before anything is created
    folder = settings.data_dir / "example"
    _show(f"demo   an example account, in {settings.data_dir}")
    _show("demo   the code host, web site, receiver and issuers are stand-ins on this machine;")
    _show("demo   no other host is contacted")
    with open_database(settings, watch=True) as url:
        own = replace(settings, database_url=url)
        async with open_stand_ins(folder, clock.now(), _show) as stand_ins, open_session(own) as session:
            account, made = await find_account(session, clock.now())
            if made:
                _show(f"import {await total(session, account)} findings from another scanner's report")
            story = _StoryMark(folder / "told", account)
            login = await create_login(session, account, clock.now())
            stand_ins.receiver.secret = await set_webhook(session, account, clock.now())
            targets: list[Target] = []
            if not story.is_played:
                await asyncio.to_thread(stand_ins.publish, clock.now(), later=False)
                targets = await add_targets(session, account, clock.now())

            async def ready(base_url: str) -> None:
                await _wait_until_ready(base_url)
                if story.is_played:
                    await send_test_event(session, account, clock.now())
                    await all_sent(session, account)
                else:
                    await play_story(session, account, targets, stand_ins, base_url=base_url, show=_show)
                    story.set_played()
                _explain(base_url, login, await total(session, account), stand_ins)

            environment = stand_ins.environment | {
                "OUTCROP_DATA_DIR": str(settings.data_dir),
                "OUTCROP_LOG_LEVEL": settings.log_level,
            }
            await supervise(own, listening, ready, environment)


class _StoryMark:
    """A file that records whether the story has been played for this account and this example."""

    def __init__(self, file: Path, account: Account) -> None:
        example = hashlib.sha256(
            "\0".join([*repositories.templates(), *site.templates()]).encode()
        ).hexdigest()
        self._file = file
        self._mark = f"{account.created_at.isoformat()} {example}"

    @property
    def is_played(self) -> bool:
        return self._file.is_file() and self._file.read_text() == self._mark

    def set_played(self) -> None:
        self._file.write_text(self._mark)


async def _wait_until_ready(base_url: str) -> None:
    """Wait until the service answers; raise OperatorError after _START_TIMEOUT seconds."""
    deadline = asyncio.get_running_loop().time() + _START_TIMEOUT
    while True:
        try:
            with await asyncio.to_thread(urllib.request.urlopen, f"{base_url}/readyz", None, 2):
                return
        except (URLError, OSError):
            if asyncio.get_running_loop().time() > deadline:
                raise OperatorError(
                    f"the service did not become ready within {_START_TIMEOUT:.0f} seconds"
                ) from None
            await asyncio.sleep(0.1)


def _show(line: str) -> None:
    print(line, flush=True)


def _explain(base_url: str, login: DemoLogin, findings: int, stand_ins: StandIns) -> None:
    """Print the addresses and credentials for trying the service."""
    count = sum(stand_ins.receiver.verified.values())
    curl = (
        f"curl -H 'Authorization: Bearer {login.key}' "
        f"'{base_url}/api/v1/findings?validation=valid&per_page=3'"
    )
    events = f"{count} signed event{'s' if count != 1 else ''}"
    _show(
        f"""
Outcrop is running at {base_url} with the example account `{SLUG}`: {findings} findings, {events} received.

  Portal    {base_url}/
  E-mail    {login.email}
  Password  {login.password}
  API key   {login.key}
  Try it    {curl}
  Reference {base_url}/reference

Every credential is made up, and stand-ins answer for the issuers. Events that you cause appear here.
Ctrl-C stops everything."""
    )
