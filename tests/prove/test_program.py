"""`make prove`: its arguments, its exit status, and a short run of the real trials."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from prove import __main__ as program
from prove.trial import NotTriedError, Report, Setting, Trial


def _holds(_: Setting, report: Report) -> None:
    report.check(holds=True, failure="")


def _fails(_: Setting, report: Report) -> None:
    report.check(holds=False, failure="it does not hold")


def _breaks_off(_: Setting, report: Report) -> None:
    report.check(holds=True, failure="")
    raise ZeroDivisionError


def _is_not_tried(_: Setting, __: Report) -> None:
    raise NotTriedError("no such machine")


def _tries_nothing(_: Setting, __: Report) -> None:
    pass


@pytest.mark.parametrize(
    ("trials", "status"),
    [
        ([_holds], 0),
        ([_holds, _fails], 1),
        ([_breaks_off], 1),
        ([_tries_nothing], 1),
        ([_holds, _is_not_tried], 3),
        ([_fails, _is_not_tried], 1),
    ],
)
def test_the_exit_status_says_whether_all_held(trials: list, status: int, tmp_path: Path) -> None:
    made = [Trial(f"t{number}", run) for number, run in enumerate(trials)]
    assert program.run(made, ["--short", "--json", str(tmp_path / "out")]) == status
    rows = json.loads((tmp_path / "out").read_text())["trials"]
    assert [row["trial"] for row in rows] == [trial.name for trial in made]


def test_the_table_says_what_was_done_how_often(capsys: pytest.CaptureFixture[str]) -> None:
    def kill(_: Setting, report: Report) -> None:
        report.check(holds=True, failure="")
        report.count("kills", 1_000)
        report.count("kills of api", 400)

    assert program.run([Trial("t", kill)], ["--short", "--seed", "7"]) == 0
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.split() == ["t", "1", "0", "0", "7", "1,000", "kills"]


def test_a_trial_that_is_not_known_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["--only", "nothing"])
    assert ended.value.code == 2
    assert "no trial is called nothing" in capsys.readouterr().err


@pytest.mark.e2e
def test_a_short_run_of_the_trials_holds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "prove", "--short", "--seed", "7", "--json", str(tmp_path / "out")]
    status = subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode
    rows = json.loads((tmp_path / "out").read_text())["trials"]
    assert [row["failures"] for row in rows if row["failures"]] == []
    assert status in {0, 3}  # a part that this machine cannot try is listed and does not fail
    assert all(row["tried"] for row in rows if not row["not_tried"])
