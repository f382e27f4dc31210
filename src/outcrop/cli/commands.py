"""The tree of commands.

Only the module of the called command is imported: most of the time of a short command is imports.
"""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from outcrop import __version__
from outcrop.cli.env_file import use_env_file, warn_about_ignored_file

EnvFile = Annotated[
    Path | None,
    typer.Option(
        "--env-file", metavar="FILE", help="Read settings that the environment does not set from a file."
    ),
]
_COMMANDS = {  # command -> (module, function)
    "scan": ("scan", "scan"),
    "why": ("why", "why"),
    "serve": ("serve", "serve"),
    "worker": ("serve", "worker"),
    "demo": ("demo", "demo"),
    "migrate": ("maintenance", "migrate"),
    "doctor": ("doctor", "doctor"),
    "backup": ("maintenance", "backup"),
    "restore": ("maintenance", "restore"),
    "import": ("exchange", "import_"),
    "export": ("exchange", "export"),
    "audit": ("audit", "audit"),
    "validate": ("validate", "validate"),
    "finding": ("findings", "finding"),
    "settings": ("settings_list", "settings"),
    "report": ("report", "report"),
    "completion": ("completion", "completion"),
}
_TAKES_DASHES = {"why"}  # an argument can be `-:12`, a line of standard input
_HIDDEN = {"finding"}  # replaced by `findings show` and `findings explain`
_GROUPS = {
    "account": ("accounts", "account"),
    "user": ("members", "user"),
    "key": ("accounts", "key"),
    "findings": ("remote_findings", "app"),
    "incidents": ("remote_incidents", "app"),
    "target": ("targets", "target"),
    "webhook": ("webhooks", "webhook"),
    "hook": ("hooks", "hook"),
    "suppression": ("suppressions", "suppression"),
    "assignment": ("assignment_rules", "assignment"),
    "secrets": ("maintenance", "secrets"),
    "rules": ("rules", "app"),
    "git-hook": ("git_hooks", "git_hook"),
}


def _print_version(requested: bool) -> None:
    """Print the version and exit, if `--version` is given."""
    if requested:
        typer.echo(f"outcrop {__version__}")
        raise typer.Exit


def tree(called: str = "") -> typer.Typer:
    """Return a tree with only the called command, or the whole tree if there is no such command."""
    app = typer.Typer(
        name="outcrop",
        help="Find leaked credentials, prove whether they are still valid, score them, and triage them.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    is_unknown = called not in {*_COMMANDS, *_GROUPS, "--version"}
    for name, place in _COMMANDS.items():
        if is_unknown or name == called:
            settings = {"ignore_unknown_options": name in _TAKES_DASHES}
            app.command(name, hidden=name in _HIDDEN, context_settings=settings)(_import_command(*place))
    for name, place in _GROUPS.items():
        if is_unknown or name == called:
            app.add_typer(_import_command(*place), name=name)
    return app


def called_command(arguments: list[str]) -> str:
    """Return the first argument that belongs to no global option, or the option that needs no command."""
    waits_for_file = False
    for argument in arguments:
        if not waits_for_file and argument != "--env-file" and not argument.startswith("--env-file="):
            return argument
        waits_for_file = not waits_for_file and argument == "--env-file"
    return ""


def _root(
    *,
    env_file: EnvFile = None,
    _version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Apply the global options. Typer also expects a command name then, if the tree has a single command."""
    use_env_file(env_file)
    warn_about_ignored_file()


def _import_command(module: str, name: str) -> Any:
    """Return a command's function, or the Typer application of a group."""
    return getattr(import_module(f"outcrop.cli.{module}"), name)
