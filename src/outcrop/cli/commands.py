"""The whole tree of commands."""

from outcrop.cli import accounts, demo, exchange, operate, serve
from outcrop.cli.scanner import app

__all__ = ["app"]

app.command("serve")(serve.serve)
app.command("worker")(serve.worker)
app.command("demo")(demo.demo)
app.command("migrate")(operate.migrate)
app.command("doctor")(operate.doctor)
app.command("import")(exchange.import_)
app.command("audit")(accounts.audit)
app.add_typer(accounts.account, name="account")
app.add_typer(accounts.user, name="user")
app.add_typer(accounts.key, name="key")
app.add_typer(operate.secrets, name="secrets")
