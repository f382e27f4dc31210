"""The tree of commands; of its modules only the one that is called is loaded, since most of a short command's time is loading."""

from importlib import import_module
from typing import Annotated, Any

import typer

_COMMANDS = {  # name: module, function
    "scan": ("scan", "scan"),
    "serve": ("serve", "serve"),
    "worker": ("serve", "worker"),
    "demo": ("demo", "demo"),
    "migrate": ("operate", "migrate"),
    "doctor": ("operate", "doctor"),
    "backup": ("operate", "backup"),
    "restore": ("operate", "restore"),
    "import": ("exchange", "import_"),
    "export": ("exchange", "export"),
    "audit": ("audit", "audit"),
    "validate": ("validate", "validate"),
    "finding": ("findings", "finding"),
}
_GROUPS = {
    "account": ("accounts", "account"),
    "user": ("members", "user"),
    "key": ("accounts", "key"),
    "target": ("targets", "target"),
    "webhook": ("webhooks", "webhook"),
    "secrets": ("operate", "secrets"),
    "rules": ("rules", "app"),
}


def _told(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - nothing else needs it

        typer.echo(f"outcrop {version('outcrop')}")
        raise typer.Exit


def tree(called: str = "") -> typer.Typer:
    """Give the command that is called, as a branch of an otherwise bare tree; the whole tree where it is none of them."""
    app = typer.Typer(
        name="outcrop",
        help="Finds leaked credentials, proves whether they are alive, scores them, and lets you triage them.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    every = called not in {*_COMMANDS, *_GROUPS, "--version"}
    for name, place in _COMMANDS.items():
        if every or name == called:
            app.command(name)(_loaded(*place))
    for name, place in _GROUPS.items():
        if every or name == called:
            app.add_typer(_loaded(*place), name=name)
    return app


def _root(
    *,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_told, help="Print the version and exit.")
    ] = False,
) -> None:
    """Be a tree, also with a single command."""


def _loaded(module: str, name: str) -> Any:
    """Give a command's function, or a group of commands."""
    return getattr(import_module(f"outcrop.cli.{module}"), name)
