"""`outcrop webhook`."""

from typing import Annotated, Any
from uuid import UUID

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import OPERATOR, AsJson, Slug, run, show, show_all, start
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.ids import parse_id
from outcrop.domain.webhook import Delivery, Webhook
from outcrop.runtime import open_session
from outcrop.services import accounts, webhooks

webhook = typer.Typer(help="Where an account's events are sent.", no_args_is_help=True)


@webhook.command("set")
def set_webhook(
    slug: Slug,
    url: Annotated[str, typer.Argument(metavar="URL", help="An https address.")],
    as_json: AsJson = False,
) -> None:
    """Save the address; the secret that deliveries are signed with is made anew and shown once."""
    settings = start()

    async def main() -> dict[str, object]:
        async with cli.transaction(settings) as session:
            there = await accounts.get_account(session.db, slug)
            secret = await webhooks.save_webhook(
                session.db, session.keys, there, url, by=OPERATOR, now=cli.now()
            )
            saved = await webhooks.get_webhook(session.db, there.id)
            return {"url": saved.url if saved else url, "secret": secret}

    show(run(main), as_json=as_json)


@webhook.command("show")
def show_webhook(slug: Slug, as_json: AsJson = False) -> None:
    """Show the address and how deliveries to it are doing; the secret cannot be shown again."""
    settings = start()

    async def main() -> Webhook:
        async with open_session(settings) as session:
            there = await accounts.get_account(session.db, slug)
            if (found := await webhooks.get_webhook(session.db, there.id)) is None:
                raise NotFoundError("the account has no webhook")
            return found

    show(_webhook(run(main)), as_json=as_json)


@webhook.command("remove")
def remove_webhook(slug: Slug, as_json: AsJson = False) -> None:
    """Remove the address and the secret; events that still wait are dropped."""
    settings = start()

    async def main() -> None:
        async with cli.transaction(settings) as session:
            await webhooks.remove_webhook(
                session.db, await accounts.get_account(session.db, slug), by=OPERATOR, now=cli.now()
            )

    run(main)
    show({"account": slug, "removed": True}, as_json=as_json)


@webhook.command("test")
def send_test(slug: Slug, as_json: AsJson = False) -> None:
    """Have a worker send a made-up event; `webhook log` tells what became of it."""
    settings = start()

    async def main() -> Delivery:
        async with cli.transaction(settings) as session:
            there = await accounts.get_account(session.db, slug)
            id_ = await webhooks.send_test_event(session.db, there, by=OPERATOR, now=cli.now())
            return await webhooks.get_delivery(session.db, there.id, id_)

    show(_delivery(run(main)), as_json=as_json)


@webhook.command("log")
def log(
    slug: Slug,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Those before this one.")] = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first."""
    settings = start()
    last = None if before is None else _id(before)

    async def main() -> list[Delivery]:
        async with open_session(settings) as session:
            there = await accounts.get_account(session.db, slug)
            return await webhooks.list_deliveries(session.db, there.id, limit=limit, before=last)

    columns = ["id", "event", "finding", "state", "status", "reason", "ms", "created_at", "sent_at"]
    show_all([_delivery(one) for one in run(main)], columns, as_json=as_json)


@webhook.command("again")
def again(slug: Slug, id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Have a worker send an event once more, as a delivery of its own."""
    settings = start()
    which = _id(id_)

    async def main() -> Delivery:
        async with cli.transaction(settings) as session:
            there = await accounts.get_account(session.db, slug)
            new = await webhooks.redeliver(session.db, there, which, by=OPERATOR, now=cli.now())
            return await webhooks.get_delivery(session.db, there.id, new)

    show(_delivery(run(main)), as_json=as_json)


def _id(text: str) -> UUID:
    if (id_ := parse_id(text)) is None:
        raise BadInputError(f"{text[:100]!r} is no id of a delivery; `outcrop webhook log` shows them")
    return id_


def _webhook(record: Webhook) -> dict[str, Any]:
    last = record.health.last_success_at
    return {
        "url": record.url,
        "created_at": record.created_at.isoformat(),
        "last_success_at": None if last is None else last.isoformat(),
        "failures_in_a_row": record.health.failures_in_a_row,
        "unknown_in_a_row": record.health.unknown_in_a_row,
    }


def _delivery(record: Delivery) -> dict[str, Any]:
    return {
        "id": str(record.id),
        "event": record.event,
        "finding": str(record.finding_id),
        "state": record.state,
        "status": record.status,
        "reason": record.reason,
        "ms": record.ms,
        "created_at": record.created_at.isoformat(),
        "sent_at": None if record.sent_at is None else record.sent_at.isoformat(),
        "answer": record.answer,
        "again_of": None if record.again_of is None else str(record.again_of),
    }
