"""`outcrop completion`: the scripts load in their shells, and complete commands, options and values."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import run

WORDS = {
    "sca": {"scan"},
    "rules ": {"list", "check", "test", "compile"},
    "scan --format s": {"sarif"},
    "scan --format sarif --report-w": {"--report-wait"},
    "--env-file scan webhook sh": {"show"},
    "git-hook in": {"install"},
    "completion z": {"zsh"},
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("scripts")
    paths = {}
    for shell in ("bash", "zsh", "fish"):
        ran = run("completion", shell, folder=folder, cache=folder)
        assert (ran.code, ran.err) == (0, "")
        paths[shell] = folder / shell
        paths[shell].write_text(ran.out)
    return paths


def run_shell(shell: str, script: str, *arguments: str, folder: Path) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: run `apt-get install {shell}` to run this test")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb"}
    done = subprocess.run(
        [shell, *arguments, script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def quote_last(line: str) -> str:
    """Return the words of a line, with an empty one at its end if nothing of it is typed."""
    return line + '""' if line.endswith(" ") else line


@pytest.mark.parametrize("line", WORDS)
def test_bash_completes(scripts: dict[str, Path], tmp_path: Path, line: str) -> None:
    script = (
        f"source {scripts['bash']}\nCOMP_WORDS=(outcrop {quote_last(line)})\n"
        'COMP_CWORD=$((${#COMP_WORDS[@]}-1))\n_outcrop\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert set(run_shell("bash", script, "-c", folder=tmp_path).split()) == WORDS[line]


@pytest.mark.parametrize("line", WORDS)
def test_fish_completes(scripts: dict[str, Path], tmp_path: Path, line: str) -> None:
    script = f"source {scripts['fish']}; complete -C 'outcrop {line}'"
    found = run_shell("fish", script, "--no-config", "-c", folder=tmp_path)
    assert {name.partition("\t")[0] for name in found.splitlines()} == WORDS[line]


@pytest.mark.parametrize("line", WORDS)
def test_zsh_completes(scripts: dict[str, Path], tmp_path: Path, line: str) -> None:
    """Replace zsh's own functions that show matches: they need a terminal."""
    script = (
        "compdef() { :; }; _describe() { print -l -- ${${(P)2}%%:*}; }; _files() { :; }\n"
        "compadd() { print -l -- ${(P)2}; }\n"
        f"source {scripts['zsh']}\nwords=(outcrop {quote_last(line)})\n"
        "CURRENT=$#words PREFIX=$words[-1]\n_outcrop"
    )
    found = set(run_shell("zsh", script, "-f", "-c", folder=tmp_path).split())
    last = line.rpartition(" ")[2]
    assert {name for name in found if name.startswith(last)} == WORDS[line]


def test_zsh_loads_the_script_with_its_completion_system(scripts: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "functions"
    folder.mkdir()
    (folder / "_outcrop").write_text(scripts["zsh"].read_text())
    script = f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; print ${{_comps[outcrop]}}"
    assert run_shell("zsh", script, "-f", "-c", folder=tmp_path) == "_outcrop\n"
    script = f"autoload -Uz compinit; compinit -u -D; source {scripts['zsh']}; print ${{_comps[outcrop]}}"
    assert run_shell("zsh", script, "-f", "-c", folder=tmp_path) == "_outcrop\n"


def test_an_unknown_shell_is_one_line(tmp_path: Path) -> None:
    assert run("completion", "csh", folder=tmp_path, cache=tmp_path).code == 2
