"""The whole tree of commands."""

import typer

from outcrop.cli import accounts, audit, demo, exchange, findings, members, operate, rules, scan, serve, targets, validate, webhooks

app = typer.Typer(
    name="outcrop",
    help="Finds leaked credentials, proves whether they are alive, scores them, and lets you triage them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("scan")(scan.scan)
app.command("serve")(serve.serve)
app.command("worker")(serve.worker)
app.command("demo")(demo.demo)
app.command("migrate")(operate.migrate)
app.command("doctor")(operate.doctor)
app.command("import")(exchange.import_)
app.command("export")(exchange.export)
app.command("audit")(audit.audit)
app.command("validate")(validate.validate)
app.command("finding")(findings.finding)
app.add_typer(accounts.account, name="account")
app.add_typer(members.user, name="user")
app.add_typer(accounts.key, name="key")
app.add_typer(targets.target, name="target")
app.add_typer(webhooks.webhook, name="webhook")
app.add_typer(operate.secrets, name="secrets")
app.add_typer(rules.app, name="rules")
