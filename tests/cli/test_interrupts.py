"""Ctrl-C at any moment of a command ends it with code 130, or with the signal itself, and without a word."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.rulesets import cached_in, github_token

WHILE_IMPORTING = """
import os, signal, sys

class Interrupt:
    is_due = False
    def find_spec(self, name, path=None, target=None):
        if self.is_due:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
        self.is_due = name == "orjson.orjson"  # a compiled module that imports others

sys.meta_path.insert(0, Interrupt())
sys.argv = ["outcrop", "scan", "files"]
from outcrop.cli import main
main()
"""
AT_THE_END = """
import atexit, os, signal, sys
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["outcrop", "scan", "--json", "files"]
from outcrop.cli import main
main()
"""
# Scans in a fork for each moment, which is a number of calls of Python functions. All modules are imported before.
AT_MANY_MOMENTS = """
import json, os, signal, sys
from outcrop.cli import main

def scan(moment):
    with open("out", "wb") as out, open("err", "wb") as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            main_pid, calls = os.getpid(), 0
            def count(frame, event, argument):
                nonlocal calls
                if event == "call":
                    calls += 1
                    if calls == moment and os.getpid() == main_pid:
                        os.kill(main_pid, signal.SIGINT)
            code = 0
            sys.setprofile(count)
            try:
                main()
            except SystemExit as end:
                code = end.code
            finally:
                sys.setprofile(None)
                with open("calls", "w") as file:
                    file.write(str(calls))
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return [code, *(open(name, errors="replace").read() for name in ("out", "err", "calls"))]

sys.argv = ["outcrop", "scan", "--json", "--jobs", "2", "files"]
from outcrop.cli.commands import called_command, tree
tree(called_command(sys.argv[1:]))
scan(0)  # fills the cache
complete = scan(0)
moments = [int(complete[3]) * part // COUNT for part in range(1, COUNT)]
ends = [scan(moment) for moment in moments]
# A scan may be over before a late moment: how often it waits for its processes differs.
print(json.dumps([complete[:3], [end[:3] for moment, end in zip(moments, ends) if int(end[3]) >= moment]]))
"""


def run(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program in a folder with the subfolder `files`, with a cache that has the compiled rules."""
    (folder / "files").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"XDG_CACHE_HOME": str(cached_in(folder / "cache"))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_interrupt_while_a_compiled_module_imports_others_ends_the_command(tmp_path: Path) -> None:
    ran = run(WHILE_IMPORTING, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_an_interrupt_after_the_last_line_of_output_adds_no_other(tmp_path: Path) -> None:
    ran = run(AT_THE_END, tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (-2, "[]\n", "")  # a shell calls it 130


def test_an_interrupt_at_any_moment_ends_a_scan(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for number in range(3):
        (tmp_path / "files" / f"f{number}").write_text(f"{github_token(number)}\n")
    ran = run(AT_MANY_MOMENTS.replace("COUNT", "9"), tmp_path)
    assert ran.returncode == 0, ran.stderr
    complete, interrupted = json.loads(ran.stdout)
    assert complete[0] == 1
    assert len(json.loads(complete[1])) == 3
    assert len(interrupted) >= 6
    unexpected: list[Any] = [end for end in interrupted if end not in ([130, "", ""], [130, complete[1], ""])]
    assert unexpected == []
