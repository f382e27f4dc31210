"""`outcrop completion`: a script that completes commands, options and their values in a shell.

The script has all names in it, so that completing does not start the program.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import typer


class Shell(StrEnum):
    """A shell that has a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@dataclass(frozen=True)
class Completion:
    """What can follow a command, such as `rules` or `rules list`; the program itself has the path ""."""

    path: str
    subcommands: dict[str, str]  # name -> description
    options: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[str]] = field(default_factory=dict)  # of options that have a fixed set of values
    waiting: list[str] = field(default_factory=list)  # options that take any other value
    choices: list[str] = field(default_factory=list)  # values of the first argument


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell that reads the script.")],
) -> None:
    """Print a script that completes commands and options in a shell."""
    from outcrop.cli.commands import tree  # noqa: PLC0415 - that module imports this one

    completions = list(_collect(typer.main.get_command(tree()), ""))
    write = {Shell.BASH: _bash, Shell.ZSH: _zsh, Shell.FISH: _fish}[shell]
    print("\n".join(write(completions)))


def _collect(command: Any, path: str) -> Iterator[Completion]:
    """Yield what can follow a command and each of its subcommands."""
    subcommands = {
        name: item for name, item in sorted(getattr(command, "commands", {}).items()) if not item.hidden
    }
    found = Completion(path, {name: _first_line(item.help) for name, item in subcommands.items()})
    found.options["--help"] = "Show the arguments and options."
    for parameter in command.params:
        choices = [str(choice) for choice in getattr(parameter.type, "choices", ())]
        if parameter.param_type_name == "argument":
            found.choices.extend(choices)
        elif not parameter.hidden:
            names = [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")]
            found.options.update(dict.fromkeys(names, _first_line(parameter.help)))
            if not parameter.is_flag and not parameter.count:
                found.waiting.extend(() if choices else parameter.opts)
                found.values.update(dict.fromkeys(parameter.opts if choices else (), choices))
    yield found
    for name, item in subcommands.items():
        yield from _collect(item, f"{path} {name}".strip())


def _first_line(text: str | None) -> str:
    """Return the first line of a description, without quotes and other signs of a shell."""
    line = next(iter((text or "").strip().splitlines()), "")
    return "".join(char for char in line if char not in "'\"`$\\:;[]{}")


def _find_command(completions: list[Completion], words: str) -> Iterator[str]:
    """Yield shell code, for bash and zsh, that sets `command` to the path that the words before have."""
    yield "  local command= skip= word"
    yield f"  for word in {words}; do"
    yield "    if [[ -n $skip ]]; then skip=; continue; fi"
    yield '    case "$command/$word" in'
    for item in completions:
        for name in item.subcommands:
            yield f"      '{item.path}/{name}') command='{f'{item.path} {name}'.strip()}' ;;"
        for option in (*item.waiting, *item.values):
            yield f"      '{item.path}/{option}') skip=1 ;;"
    yield "    esac"
    yield "  done"


def _bash(completions: list[Completion]) -> Iterator[str]:
    """Yield the lines of the script for bash."""
    yield "# outcrop completion bash; load it with: source <(outcrop completion bash)"
    yield "_outcrop() {"
    yield "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} names= options="
    yield from _find_command(completions, '"${COMP_WORDS[@]:1:COMP_CWORD-1}"')
    yield "  COMPREPLY=()"
    yield '  case "$command/$before" in'
    for item in completions:
        for option, values in item.values.items():
            yield f"    '{item.path}/{option}') names='{' '.join(values)}' ;;"
        for option in item.waiting:
            yield f"    '{item.path}/{option}') return ;;"
    yield "  esac"
    yield "  if [[ -z $names ]]; then"
    yield '    case "$command" in'
    for item in completions:
        names = " ".join((*item.subcommands, *item.choices))
        yield f"      '{item.path}') names='{names}' options='{' '.join(item.options)}' ;;"
    yield "    esac"
    yield "  fi"
    yield "  if [[ $current == -* ]]; then names=$options; fi"
    yield '  COMPREPLY=($(compgen -W "$names" -- "$current"))'
    yield "}"
    yield "complete -o default -F _outcrop outcrop"


def _zsh(completions: list[Completion]) -> Iterator[str]:
    """Yield the lines of the script for zsh. It can be sourced, or be a file `_outcrop` in `fpath`."""
    yield "#compdef outcrop"
    yield "_outcrop() {"
    yield "  local -a names options"
    yield "  local before=${words[CURRENT-1]}"
    yield from _find_command(completions, '"${(@)words[2,CURRENT-1]}"')
    yield '  case "$command/$before" in'
    for item in completions:
        for option, values in item.values.items():
            yield f"    '{item.path}/{option}') names=({' '.join(values)}); compadd -a names; return ;;"
        for option in item.waiting:
            yield f"    '{item.path}/{option}') _files; return ;;"
    yield "  esac"
    yield '  case "$command" in'
    for item in completions:
        described = [f"'{name}:{text}'" for name, text in item.subcommands.items()]
        names = " ".join((*described, *item.choices))
        options = " ".join(f"'{name}:{text}'" for name, text in item.options.items())
        yield f"    '{item.path}') names=({names}) options=({options}) ;;"
    yield "  esac"
    yield "  if [[ $PREFIX == -* ]]; then _describe option options"
    yield "  elif (( $#names )); then _describe command names"
    yield "  else _files; fi"
    yield "}"
    yield 'if [[ $funcstack[1] == _outcrop ]]; then _outcrop "$@"; else compdef _outcrop outcrop; fi'


def _fish(completions: list[Completion]) -> Iterator[str]:
    """Yield the lines of the script for fish."""
    yield "function __outcrop_at"
    yield "  set -l command ''"
    yield "  set -l skip ''"
    yield "  for word in (commandline -opc)[2..-1]"
    yield "    if test -n \"$skip\"; set skip ''; continue; end"
    yield '    switch "$command/$word"'
    for item in completions:
        for name in item.subcommands:
            yield f"      case '{item.path}/{name}'; set command '{f'{item.path} {name}'.strip()}'"
        for option in (*item.waiting, *item.values):
            yield f"      case '{item.path}/{option}'; set skip 1"
    yield "    end"
    yield "  end"
    yield '  test "$command" = "$argv[1]"'
    yield "end"
    for item in completions:
        at = f"complete -c outcrop -n '__outcrop_at \"{item.path}\"'"
        for name, text in item.subcommands.items():
            yield f"{at} -f -a {name} -d '{text}'"
        if item.choices:
            yield f"{at} -f -a '{' '.join(item.choices)}'"
        for option, text in item.options.items():
            more = f" -x -a '{' '.join(item.values[option])}'" if option in item.values else ""
            more = " -r" if option in item.waiting else more
            yield f"{at} -l {option.removeprefix('--')}{more} -d '{text}'"
