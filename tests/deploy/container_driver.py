"""Start the service inside of the container-like root, use it, stop it, and print what happened as JSON."""

import json
import os
import pwd
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("outcrop"))
SECONDS = 240


def outcrop(*arguments: str) -> Any:
    done = subprocess.run([COMMAND, *arguments, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return json.loads(done.stdout)


def fetch(url: str, key: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.status, response.read()


def wait_for_address(serve: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address of the service as soon as it is ready."""
    deadline = time.monotonic() + SECONDS
    while True:
        assert serve.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        with suppress(OSError):
            if (found := re.search(r'"base_url": "([^"]+)"', log.read_text())) is not None:
                fetch(f"{found[1]}/readyz")
                return found[1]
        time.sleep(0.1)


def surroundings() -> dict[str, bool]:
    """Return what makes this a container: each must be true."""
    try:
        pwd.getpwuid(os.getuid())
        known = True
    except KeyError:
        known = False
    try:
        (Path(sys.prefix) / "file").touch()
        writable = True
    except OSError:
        writable = False
    return {
        "no entry for the user": not known,
        "no home folder": "HOME" not in os.environ,
        "not root": os.getuid() != 0,
        "read-only": not writable,
    }


def main() -> None:
    result: dict[str, Any] = {"surroundings": surroundings()}
    log = Path(os.environ["OUTCROP_DATA_DIR"]).parent / "serve.log"
    with log.open("w") as file:
        serve = subprocess.Popen([COMMAND, "serve", "--port", "0"], stderr=file)
    base_url = wait_for_address(serve, log)
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "sec@acme.example")
    key = outcrop("key", "create", "--account", "acme", "--name", "ci")["key"]
    status, body = fetch(f"{base_url}/api/v1/findings", key)
    result["list"] = [status, json.loads(body)["meta"]["total"]]
    scan = [COMMAND, "scan", "--account", "acme", os.environ["TARGET"], "--json"]
    result["scan"] = subprocess.run(scan, capture_output=True, check=False).returncode
    result["found"] = json.loads(fetch(f"{base_url}/api/v1/findings", key)[1])["meta"]["total"]
    port = json.loads(next(line for line in log.read_text().splitlines() if "serving_metrics" in line))[
        "port"
    ]
    result["db_up"] = b"\noutcrop_db_up 1.0\n" in fetch(f"http://127.0.0.1:{port}/metrics")[1]
    result["doctor"] = {check["check"]: [check["ok"], check["detail"]] for check in outcrop("doctor")}
    serve.terminate()
    result["exit"] = serve.wait(60)
    result["errors"] = [line for line in log.read_text().splitlines() if '"level": "error"' in line]
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
