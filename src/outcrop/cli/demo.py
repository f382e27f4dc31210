"""`outcrop demo`: a running service with an example account, and a `curl` line that works."""

import asyncio
import io
import json
import random
import urllib.request
from datetime import timedelta
from typing import Annotated, Any
from urllib.error import URLError

import typer

from outcrop.cli import session as cli
from outcrop.cli.serve import Listening, supervise
from outcrop.cli.session import OPERATOR, run, start
from outcrop.domain.account import Plan
from outcrop.domain.errors import NotFoundError, OperatorError
from outcrop.domain.finding import SourceType, Status, Validation
from outcrop.domain.paging import FindingQuery
from outcrop.runtime import Session, open_session
from outcrop.services import accounts, exchange, findings, keys

SLUG = "demo"
_STARTS_WITHIN = 30.0  # seconds


def demo(port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000) -> None:
    """Serve an example account, made up on the spot, on this machine."""
    settings = start().model_copy(update={"base_url": None})

    async def ready(base_url: str, database: str) -> None:
        await _answers(base_url)
        async with open_session(settings.model_copy(update={"database_url": database})) as session:
            token, total = await _fill(session)
        _explain(base_url, token, total)

    run(lambda: supervise(settings, Listening(port=port), ready))


async def _fill(session: Session) -> tuple[str, int]:
    """Make the account the first time; make a fresh key every time, since a key is shown only once."""
    async with session.db.transaction():
        try:
            account = await accounts.get_account(session.db, SLUG)
            made = False
        except NotFoundError:
            account = await accounts.create_account(
                session.db, slug=SLUG, plan=Plan.GROWTH, email="demo@example.com", by=OPERATOR, now=cli.now()
            )
            made = True
        for key in await keys.list_keys(session.db, account):
            if key.name == SLUG and key.revoked_at is None:
                await keys.revoke_key(session.db, str(key.id), by=OPERATOR, now=cli.now())
        new = await keys.create_key(session.db, account, name=SLUG, expires_at=None, by=OPERATOR, member=None, now=cli.now())
    if made:
        lines = io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in _examples()))
        await exchange.import_findings(
            session.db, session.keys, account, lines, keep_secrets=True, by=OPERATOR, now=cli.now(), progress=lambda _: None
        )
    page = await findings.list_findings(session.db, account.id, FindingQuery(per_page=1))
    return new.token, page.total


# name, secret type, prefix and length of a made-up value, what it opens
_KINDS = [
    ("AWS access key pair", "aws", "AKIA", 20, ["aws_s3", "aws_ec2", "aws_iam"]),
    ("GitHub personal access token", "github", "ghp_", 40, ["github_repo", "github_user"]),
    ("Stripe secret key", "stripe", "sk_live_", 32, ["stripe_payments"]),
    ("Slack bot token", "slack", "xoxb-", 56, ["slack_chat", "slack_files"]),
    ("Google API key", "google", "AIza", 39, ["google_maps"]),
    ("Database password", "password", "", 14, []),
]
_REPOSITORIES = ["acme/shop", "acme/infrastructure", "acme/mobile-app", "jo/dotfiles"]
_FILES = ["config/settings.py", ".env", "deploy/values.yaml", "src/app.js", "README.md", "scripts/backup.sh"]


def _examples() -> list[dict[str, Any]]:
    """Make up findings in every state; the same ones every time."""
    dice = random.Random(7)  # noqa: S311 - an example, no secret
    now = cli.now()
    made = []
    for number in range(60):
        name, secret_type, prefix, length, services = _KINDS[number % len(_KINDS)]
        value = prefix + "".join(dice.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", k=length - len(prefix)))
        validation = dice.choice(list(Validation)[:3])
        status = dice.choices(list(Status), weights=[12, 3, 1, 1, 1])[0]
        source = dice.choice(list(SourceType))
        repository, path = dice.choice(_REPOSITORIES), dice.choice(_FILES)
        seen = now - timedelta(days=dice.randrange(90), minutes=dice.randrange(1440))
        valid = validation is Validation.VALID
        made.append(
            {
                "secret": value,
                "status": status,
                "validation_status": validation,
                "validation_confidence": "low" if validation is Validation.UNVALIDATED else "high",
                "validation_detail": {"enabled_services": services if valid else []},
                "composite_score": dice.randrange(62, 98) if valid else dice.randrange(5, 55),
                "source_type": source,
                "source_visibility": "public",
                "source_url": f"https://github.com/{repository}/blob/main/{path}#L{number + 3}",
                "repo_full_name": repository,
                "file_path": path,
                "line_number": number + 3,
                "pattern": {"name": name, "secret_type": secret_type},
                "first_seen_at": seen.isoformat(),
                "last_seen_at": now.isoformat(),
            }
        )
    return made


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


def _explain(base_url: str, token: str, total: int) -> None:
    print(
        f"""
Outcrop is running at {base_url} with the example account `{SLUG}`: {total} made-up findings.

  API key   {token}
  Try it    curl -H 'Authorization: Bearer {token}' '{base_url}/api/v1/findings?validation=valid&per_page=3'
  Reference {base_url}/openapi.json

Ctrl-C stops everything.""",
        flush=True,
    )
