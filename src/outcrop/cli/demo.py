"""`outcrop demo`: the whole service on a local example, with a login, a key and a `curl` line that work."""

import asyncio
import hashlib
import urllib.request
from pathlib import Path
from typing import Annotated
from urllib.error import URLError

import typer

from outcrop.cli import session as cli
from outcrop.cli.serve import Listening, listen, supervise
from outcrop.cli.session import run
from outcrop.demo import repositories, site
from outcrop.demo.account import SLUG, Login, add_targets, connect, find_account, let_in, try_out
from outcrop.demo.stand_ins import StandIns, open_stand_ins
from outcrop.demo.story import all_sent, tell_story, total
from outcrop.domain.account import Account
from outcrop.domain.errors import OperatorError
from outcrop.domain.target import Target
from outcrop.logs import set_up_logs
from outcrop.runtime import open_database, open_session
from outcrop.settings import Settings, load_settings

_STARTS_WITHIN = 60.0  # seconds; the first time, rules are compiled meanwhile


def demo(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
) -> None:
    """Show everything at once on an example that is made up on the spot; nothing leaves this machine."""
    settings = own_settings()
    set_up_logs(settings.log_level, settings.log_format)
    run(lambda: _demo(settings, Listening(port=port)))


def own_settings() -> Settings:
    """Give the operator's settings, in a folder of the demo's own unless one is named, and with quiet logs unless they are wanted."""
    given = load_settings()
    own: dict[str, object] = {"base_url": None}
    if "data_dir" not in given.model_fields_set:
        own["data_dir"] = given.data_dir.expanduser().absolute() / "demo"
    if "log_level" not in given.model_fields_set:
        own["log_level"] = "warning"
    return given.model_copy(update=own)


async def _demo(settings: Settings, listening: Listening) -> None:
    listen(listening).close()  # a port that is taken is told before anything is made
    folder = settings.data_dir / "example"
    _show(f"demo   an account that is made up, in {settings.data_dir}")
    _show(
        "demo   the code host, the web site, the receiver and all issuers are stand-ins on this machine; nothing else is connected to"
    )
    with open_database(settings) as url:
        own = settings.model_copy(update={"database_url": url})
        async with open_stand_ins(folder, cli.now(), _show) as stand_ins, open_session(own) as session:
            account, made = await find_account(session, cli.now())
            if made:
                _show(f"import {await total(session, account)} findings of an earlier scanner's report")
            story = _Story(folder / "told", account)
            login = await let_in(session, account, cli.now())
            stand_ins.receiver.secret = await connect(session, account, cli.now())
            again: list[Target] = []
            if not story.told:
                await asyncio.to_thread(stand_ins.publish, cli.now(), later=False)
                again = await add_targets(session, account, cli.now())

            async def ready(base_url: str) -> None:
                await _answers(base_url)
                if story.told:
                    await try_out(session, account, cli.now())
                    await all_sent(session, account)
                else:
                    await tell_story(session, account, again, stand_ins, _show)
                    story.tell()
                _explain(base_url, login, await total(session, account), stand_ins)

            environment = stand_ins.environment | {
                "OUTCROP_DATA_DIR": str(settings.data_dir),
                "OUTCROP_LOG_LEVEL": settings.log_level,
            }
            await supervise(own, listening, ready, environment)


class _Story:
    """Remembers whether everything has happened to this account already, with this example."""

    def __init__(self, file: Path, account: Account) -> None:
        example = hashlib.sha256(
            "\0".join([*repositories.templates(), *site.templates()]).encode()
        ).hexdigest()
        self._file = file
        self._mark = f"{account.created_at.isoformat()} {example}"

    @property
    def told(self) -> bool:
        return self._file.is_file() and self._file.read_text() == self._mark

    def tell(self) -> None:
        self._file.write_text(self._mark)


async def _answers(base_url: str) -> None:
    """Wait until the service is ready."""
    deadline = asyncio.get_running_loop().time() + _STARTS_WITHIN
    while True:
        try:
            with await asyncio.to_thread(urllib.request.urlopen, f"{base_url}/readyz", None, 2):
                return
        except (URLError, OSError):
            if asyncio.get_running_loop().time() > deadline:
                raise OperatorError("the service does not become ready") from None
            await asyncio.sleep(0.1)


def _show(line: str) -> None:
    print(line, flush=True)


def _explain(base_url: str, login: Login, findings: int, stand_ins: StandIns) -> None:
    count = sum(stand_ins.receiver.verified.values())
    events = f"{count} signed event{'s' if count != 1 else ''}"
    _show(
        f"""
Outcrop is running at {base_url} with the example account `{SLUG}`: {findings} findings, {events} received.

  Portal    {base_url}/
  E-mail    {login.email}
  Password  {login.password}
  API key   {login.key}
  Try it    curl -H 'Authorization: Bearer {login.key}' '{base_url}/api/v1/findings?validation=valid&per_page=3'
  Reference {base_url}/reference

Every credential is made up, and stand-ins answer for the issuers: no real one is asked. Events that you cause are shown here.
Ctrl-C stops everything."""
    )
