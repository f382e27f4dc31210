"""The command `outcrop webhook`."""

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

webhook = typer.Typer(help="The webhook of an account.", no_args_is_help=True)


@webhook.command("set")
def set_webhook(
    slug: Slug,
    url: Annotated[str, typer.Argument(metavar="URL", help="An https address.")],
    as_json: AsJson = False,
) -> None:
    """Save the address. A new signing secret is generated and shown once."""
    settings = start()

    async def main() -> dict[str, object]:
        async with cli.transaction(settings) as session:
            account = await accounts.get_account(session.db, slug)
            secret = await webhooks.save_webhook(
                session.db,
                session.keys,
                account,
                url,
                ports=settings.allowed_webhook_ports,
                by=OPERATOR,
                now=session.now,
            )
            saved = await webhooks.get_webhook(session.db, session.keys, account.id)
            return {"url": saved.url if saved else url, "secret": secret}

    show(run(main), as_json=as_json)


@webhook.command("show")
def show_webhook(slug: Slug, as_json: AsJson = False) -> None:
    """Show the address and the state of its deliveries. The secret cannot be shown again."""
    settings = start()

    async def main() -> Webhook:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            if (record := await webhooks.get_webhook(session.db, session.keys, account.id)) is None:
                raise NotFoundError("the account has no webhook")
            return record

    show(_webhook(run(main)), as_json=as_json)


@webhook.command("remove")
def remove_webhook(slug: Slug, as_json: AsJson = False) -> None:
    """Remove the address and the secret; waiting events are dropped."""
    settings = start()

    async def main() -> None:
        async with cli.transaction(settings) as session:
            await webhooks.remove_webhook(
                session.db,
                session.keys,
                await accounts.get_account(session.db, slug),
                by=OPERATOR,
                now=session.now,
            )

    run(main)
    show({"account": slug, "removed": True}, as_json=as_json)


@webhook.command("test")
def send_test(slug: Slug, as_json: AsJson = False) -> None:
    """Queue a test event; `webhook log` shows the result."""
    settings = start()

    async def main() -> Delivery:
        async with cli.transaction(settings) as session:
            account = await accounts.get_account(session.db, slug)
            id_ = await webhooks.send_test_event(session.db, account, by=OPERATOR, now=session.now)
            return await webhooks.get_delivery(session.db, account.id, id_)

    show(_delivery(run(main)), as_json=as_json)


@webhook.command("log")
def log(
    slug: Slug,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of deliveries.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="ID", help="Only deliveries before this one.")] = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first."""
    settings = start()
    last = None if before is None else _id(before)

    async def main() -> list[Delivery]:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            return await webhooks.list_deliveries(session.db, account.id, limit=limit, before=last)

    columns = ["id", "event", "finding", "state", "status", "reason", "ms", "created_at", "sent_at"]
    show_all([_delivery(delivery) for delivery in run(main)], columns, as_json=as_json)


@webhook.command("again")
def redeliver(slug: Slug, id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Queue an event once more, as a new delivery."""
    settings = start()
    delivery_id = _id(id_)

    async def main() -> Delivery:
        async with cli.transaction(settings) as session:
            account = await accounts.get_account(session.db, slug)
            new = await webhooks.redeliver(session.db, account, delivery_id, by=OPERATOR, now=session.now)
            return await webhooks.get_delivery(session.db, account.id, new)

    show(_delivery(run(main)), as_json=as_json)


def _id(text: str) -> UUID:
    """Parse the id of a delivery; raise BadInputError if it is not a UUID."""
    if (id_ := parse_id(text)) is None:
        raise BadInputError(f"{text[:100]!r} is not the id of a delivery; `outcrop webhook log` lists them")
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
