"""The commands that need no service: they load in a moment, since a hook before every commit waits for them."""

import typer

from outcrop.cli import rules, scan

app = typer.Typer(
    name="outcrop",
    help="Finds leaked credentials, proves whether they are alive, scores them, and lets you triage them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("scan")(scan.scan)
app.add_typer(rules.rules, name="rules")
