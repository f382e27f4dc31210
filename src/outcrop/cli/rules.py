"""`outcrop rules`."""

from pathlib import Path
from typing import Annotated

import orjson
import typer

from outcrop.cli.exits import fail
from outcrop.scanner.loader import load_paths
from outcrop.scanner.proof import failures
from outcrop.scanner.ruleset import BUILT_IN, load, make

app = typer.Typer(
    no_args_is_help=True,
    help="The rules that say how credentials are recognised.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]


@app.command("list")
def list_rules(
    own: Annotated[list[Path] | None, typer.Option("--rules", help="Own rules beside the built-in ones.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show every rule."""
    records = [
        {"id": rule.id, "name": rule.name, "secret_type": rule.secret_type, "issuer": rule.issuer, "impact": rule.impact}
        for rule in sorted(load_paths([BUILT_IN, *(own or [])]), key=lambda rule: rule.id)
    ]
    if as_json:
        print(orjson.dumps(records).decode())
        return
    width = max(len(record["id"]) for record in records)
    for record in records:
        print(f"{record['id']:<{width}}  {record['name']}")


@app.command()
def check(path: Annotated[Path, typer.Argument(metavar="PATH", help="A rule file, or a folder of them.")], as_json: AsJson = False) -> None:
    """Check that rules can be loaded; the first fault is told with its file and line."""
    found = make(load_paths([path])).rules
    print(orjson.dumps({"rules": len(found)}).decode() if as_json else f"{len(found)} rules are well formed")


@app.command("test")
def run_tests(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A rule file, or a folder of them.")], as_json: AsJson = False
) -> None:
    """Run the examples and counterexamples of rules, beside the built-in ones."""
    mine = load_paths([path])
    others = [rule for rule in load().rules if rule.id not in {rule.id for rule in mine}]
    count, faults = failures(mine, make([*others, *mine]))
    if as_json:
        print(orjson.dumps({"cases": count, "failed": [{"rule": rule, "reason": reason} for rule, reason in faults]}).decode())
    else:
        for rule, reason in faults:
            print(f"{rule}: {reason}")
        print(f"{count - len(faults)} of {count} cases hold")
    if faults:
        fail(f"{len(faults)} cases of {path} do not hold")
