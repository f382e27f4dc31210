"""`make run`: the first minute, twice."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import httpx

COMMAND = str(Path(sys.executable).with_name("outcrop"))


def run_demo(folder: Path) -> tuple[str, int]:
    """Start the demo, do what its `curl` line does, stop it with Ctrl-C; give the key and the total."""
    environment = os.environ | {"OUTCROP_DATA_DIR": str(folder)}
    with subprocess.Popen(
        [COMMAND, "demo", "--port", "0"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as demo:
        assert demo.stdout is not None
        said = ""
        for line in demo.stdout:
            said += line
            if "Ctrl-C stops everything" in line:
                break
        found = re.search(r"Try it +(curl .*)", said)
        assert found is not None, said
        _, _, header, address = shlex.split(found[1])
        name, _, value = header.partition(": ")
        answer = httpx.get(address, headers={name: value}, trust_env=False)
        again = httpx.get(address.partition("?")[0], headers={name: value}, trust_env=False)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 130
    assert answer.status_code == 200
    assert {row["validation_status"] for row in answer.json()["data"]} == {"valid"}
    return value, again.json()["meta"]["total"]


def test_the_printed_curl_works_and_a_second_run_finds_the_same_account(tmp_path: Path) -> None:
    first, total = run_demo(tmp_path / "data")
    second, total_again = run_demo(tmp_path / "data")
    assert total == total_again == 60
    assert first != second, "a key is shown once, so each run makes its own"
