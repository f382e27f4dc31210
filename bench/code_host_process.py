"""A stand-in of a code host and a webhook receiver, in a process of their own, for `bench.code_hosts`.

python -m bench.code_host_process FOLDER KIND REPOSITORIES LISTED DELAY prints the settings for `outcrop` as
one line of JSON. For each line of its input it prints the numbers of requests since the last one, the pages
of the list so far, and all events with their times; it serves until the input ends. The last REPOSITORIES of
the LISTED ones can be cloned.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench.pipeline_hosts import OWNER, make_repository
from tests.sources.hosts.test_every_host import KINDS
from tests.support.code_hosts.stand_in import run_stand_in
from tests.support.fake_https import FakeResponse, ReceivedRequest

RECEIVER = "hooks.example"


def main() -> None:
    folder, kind = Path(sys.argv[1]), next(kind for kind in KINDS if str(kind) == sys.argv[2])
    repositories, listed, delay = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    served = folder / "served"
    numbers = range(listed - repositories, listed)
    for number in numbers:
        path = served / kind.project / f"r{number}.git"
        if not path.exists():
            source = folder / "made" / OWNER / f"r{number}.git"
            if not source.exists():
                make_repository(source, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(source)
    stand_in = kind.make()
    stand_in.hosts = (*stand_in.hosts, RECEIVER)
    stand_in.served = served
    for number in range(listed):
        stand_in.add(f"{kind.project}/r{number}")
    cloned = {f"r{number}" for number in numbers}
    events: list[tuple[float, str]] = []
    pages: list[str] = []

    def respond(request: ReceivedRequest) -> FakeResponse:
        if request.host == RECEIVER:
            events.append((time.time(), json.loads(request.body)["finding"]["repo_full_name"]))
            return FakeResponse(200)
        if kind.list_path in f"{request.path}?{request.query}":
            pages.append(request.query)
        is_git = ".git/" in request.path or "/_git/" in request.path
        if is_git and cloned.isdisjoint(request.path.replace(".git", "").split("/")):
            return FakeResponse(401, {"WWW-Authenticate": "Basic"}, delay=delay)
        return replace(stand_in.respond(request), delay=delay)

    with run_stand_in(stand_in, folder / f"tls-{os.getpid()}"):
        assert stand_in.server is not None
        stand_in.server.respond = respond
        egress = stand_in.server.egress
        pairs = [f"{host}:{port}={address}:{to}" for host, port, address, to in egress.connect_to]
        settings = {
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": ",".join(pairs),
            "OUTCROP_EGRESS_CA_FILE": str(egress.ca_file),
        }
        print(json.dumps(settings), flush=True)
        for _ in sys.stdin:
            git = sum(".git/" in path or "/_git/" in path for path in stand_in.paths)
            counts = {
                "api": len(stand_in.paths) - git,
                "git": git,
                "pages": len(pages),
                "events": list(events),
            }
            print(json.dumps(counts), flush=True)
            stand_in.requests.clear()
            stand_in.server.requests.clear()


if __name__ == "__main__":
    main()
