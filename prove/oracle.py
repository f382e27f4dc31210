"""The oracle: a process that changes findings, keeps every acknowledged answer in a file, and compares.

It imports nothing of Outcrop. It reads commands from standard input and answers each with a line of JSON:
`connect BASE_URL` (the API key is the next line), `resume`, `pause`, `finish`, `missing AUDIT_FILE`,
`verify AUDIT_FILE` and `quit`. It is also the receiver of the account's webhook.
"""

import argparse
import http.client
import json
import random
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started with -I, which leaves the folder out

from prove.oracle_model import CLOSED, Belief, from_finding

FILTERS: list[dict[str, Any]] = [
    {},
    *(
        {"status": status}
        for status in ("active", "resolved", "false_positive", "customer_restricted", "stale")
    ),
    *({"validation": status} for status in ("valid", "invalid", "unvalidated")),
    *({"source_type": kind} for kind in ("repo", "commit", "endpoint")),
    {"min_score": "40"},
    {"status": "resolved", "min_score": "40"},
]
_LAST_ATTEMPTS = 600  # to read one page when all must be there
_SETTLED_AFTER = 20.0  # seconds; the service ends a statement of the API after 4
_BULK_SECONDS = 60.0  # more for a request about many findings
_RECORDS = 3  # records of one report


class Journal:
    """The file of the oracle: one line of JSON for each answer, written before the next request."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def write(self, **entry: Any) -> None:
        with self._lock:
            self._file.write(json.dumps(entry) + "\n")


class Api:
    """The service's API, as one client sees it."""

    def __init__(self, base_url: str, key: str) -> None:
        self._address = urlsplit(base_url)
        self._headers = {"Authorization": f"Bearer {key}"}

    def send(
        self,
        method: str,
        path: str,
        *,
        version: int = 1,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> tuple[int, Any]:
        """Return status and parsed body of a response; `body` is sent as lines of JSON.

        Raise OSError if there is no complete response.
        """
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=30)
        query = f"?{urlencode(parameters)}" if parameters else ""
        lines = body if isinstance(body, list) else [] if body is None else [body]
        content = "\n".join(map(json.dumps, lines)).encode() if lines else None
        try:
            connection.request(
                method, f"/api/v{version}{path}{query}", content, self._headers | dict(headers or {})
            )
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    def read(self, path: str, *, version: int = 1, **parameters: Any) -> Any:
        """Return the body of a successful GET; wait for a service that is away."""
        problem = ""
        for _ in range(_LAST_ATTEMPTS):
            try:
                status, body = self.send("GET", path, version=version, **parameters)
                if status == http.client.OK:
                    return body
                problem = f"{status} {body}"
            except OSError as error:
                problem = repr(error)
            time.sleep(0.2)
        raise OSError(f"GET {path}: {problem}")

    def everything(self, **filters: Any) -> tuple[list[dict[str, Any]], set[int]]:
        """Return all findings of a list, and the totals that its pages named."""
        found: list[dict[str, Any]] = []
        totals: set[int] = set()
        page, pages = 1, 1
        while page <= pages:
            body = self.read("/findings", per_page=200, page=page, order_by="first_seen_at", **filters)
            found += body["data"]
            totals.add(body["meta"]["total"])
            pages, page = body["meta"]["pages"], page + 1
        return found, totals


class Oracle:
    """The beliefs about all findings, the clients that change them, and what went wrong."""

    def __init__(
        self,
        api: Api,
        journal: Journal,
        deliveries: Counter[str],
        announced: Counter[str],
        *,
        clients: int,
        seed: int,
    ) -> None:
        self.api = api
        self.journal = journal
        self.deliveries = deliveries  # how often each arrived, by the id in `webhook-id`
        self.announced = announced  # how often `finding.new` arrived, by the id of the finding
        self.beliefs = {f["id"]: Belief(from_finding(f)) for f in api.everything(status="active")[0]}
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.running = threading.Event()
        self.idle = [threading.Event() for _ in range(clients + 1)]
        self.imports: dict[str, int] = {}  # acknowledged imports that are not compared yet: id -> number
        self.sent_reports = 0
        self._lock = threading.Lock()
        ids = sorted(self.beliefs)
        for number in range(clients):
            arguments = (random.Random(seed * 1000 + number), ids[number::clients], self.idle[number])
            threading.Thread(target=self._change, args=arguments, daemon=True).start()
        threading.Thread(target=self._send_reports, args=(self.idle[clients],), daemon=True).start()

    def fail(self, text: str) -> None:
        with self._lock:
            self.failures.append(text)

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _change(self, rng: random.Random, ids: list[str], idle: threading.Event) -> None:
        """Change and read findings of this client for ever. No other client changes them."""
        while True:
            self._wait_while_paused(idle)
            finding = rng.choice(ids)
            if rng.random() < 0.2:
                self._list(rng)
            elif not self.beliefs[finding].is_certain:
                self._settle(finding)
            elif rng.random() < 0.05:
                self._act_on_many(rng, [id_ for id_ in rng.sample(ids, 8) if self.beliefs[id_].is_certain])
            else:
                self._act(rng, finding)

    def _wait_while_paused(self, idle: threading.Event) -> None:
        """Return at once while the changes run; otherwise say that this client is idle, and wait."""
        if not self.running.is_set():
            idle.set()
            self.running.wait()
            idle.clear()

    def _act(self, rng: random.Random, finding: str) -> None:
        """Send one action, and take in the answer."""
        action = rng.choice([*CLOSED, "suppress"])
        note = None if action == "suppress" or rng.random() < 0.3 else f"n{rng.randrange(10**9)}"
        belief = self.beliefs[finding]
        parameters: dict[str, Any] = {} if note is None else {"note": note}
        try:
            code, body = self.api.send("POST", f"/findings/{finding}/{action}", **parameters)
        except ConnectionRefusedError:  # nothing was sent
            self.count("refused connections")
            time.sleep(0.1)
            return
        except OSError:
            code, body = 0, None
        self.journal.write(at=time.time(), finding=finding, action=action, note=note, code=code)
        if code in {200, 400}:
            status = body["data"]["status"] if code == http.client.OK else None
            self.count("acknowledged" if code == http.client.OK else "refused")
            if wrong := belief.acknowledge(action, note, code, status):
                self.fail(f"{finding}: {wrong}")
        else:
            self.count("unanswered")
            belief.doubt(action, note)
            belief.doubted_at = time.monotonic()
            if code not in {0, 500, 503}:
                self.fail(f"{finding}: {action} was answered {code}")
            time.sleep(0.1)

    def _act_on_many(self, rng: random.Random, findings: list[str]) -> None:
        """Apply one action to several findings in one request, and take in the outcome of each."""
        action, note = rng.choice([*CLOSED, "suppress"]), f"n{rng.randrange(10**9)}"
        body = {"action": action, "note": note, "ids": findings}
        try:
            code, answer = self.api.send("POST", "/findings/bulk", version=2, body=body)
        except ConnectionRefusedError:  # nothing was sent
            return
        except OSError:
            code, answer = 0, None
        self.journal.write(at=time.time(), findings=findings, action=action, note=note, code=code)
        if code == http.client.OK:
            self.count("acknowledged in bulk")
            for row in answer["data"]:
                is_refused = row["outcome"] == "refused"
                status = None if is_refused else row["status"]
                wrong = self.beliefs[row["id"]].acknowledge(
                    action, None if action == "suppress" else note, 400 if is_refused else 200, status
                )
                if wrong:
                    self.fail(f"{row['id']}: in bulk, {wrong}")
            return
        self.count("unanswered")
        for finding in findings:
            self.beliefs[finding].doubt(action, note)
            self.beliefs[finding].doubted_at = time.monotonic() + _BULK_SECONDS
        if code not in {0, 500, 503}:
            self.fail(f"a bulk action was answered {code}")

    def _send_reports(self, idle: threading.Event) -> None:
        """Send reports of new findings for ever. Each is sent again, with its key, until it is answered."""
        while True:
            self._wait_while_paused(idle)
            self.sent_reports += 1
            number = self.sent_reports
            body = [_record(number, line) for line in range(_RECORDS)]
            key = {"Idempotency-Key": f"prove-{number}"}
            code = 0
            while code != http.client.ACCEPTED:
                try:
                    code, answer = self.api.send(
                        "POST", "/imports", version=2, body=body, headers=key, format="outcrop"
                    )
                except OSError:
                    code, answer = 0, None
                if code not in {0, http.client.ACCEPTED, 408, 500, 503}:
                    self.fail(f"report {number} was answered {code}: {answer}")
                    break
                if code == http.client.ACCEPTED:
                    self.journal.write(at=time.time(), report=number, import_id=answer["data"]["id"])
                    self.imports[answer["data"]["id"]] = number
                    self.count("reports")
                time.sleep(0.5)

    def finish(self) -> None:
        """Wait for the end of every acknowledged import; each finding of its report exists once.

        An import that the service has given up, and says so, has made none.
        """
        total = self.api.read("/imports", version=2)["meta"]["total"]
        if total != self.sent_reports:
            self.fail(f"there are {total} imports of {self.sent_reports} reports")
        for id_, number in list(self.imports.items()):
            state = self._ended_import(id_)
            self.count("imports")
            expected = _RECORDS
            if state["status"] == "failed" and "attempts did not end" in state["error"]["message"]:
                # Its worker was killed each time: the sender is told, and nothing is imported.
                self.count("imports given up")
                expected = 0
            elif (state["status"], state["findings_new"]) != ("completed", _RECORDS):
                self.fail(f"import {number} is {state}")
            found, _ = self.api.everything(repo=f"reports/{number}")
            if len(found) != expected:
                self.fail(f"import {number} has made {len(found)} findings of {expected}")
            for finding in found:
                self.beliefs[finding["id"]] = Belief(from_finding(finding))
                self.beliefs[finding["id"]].least_events["finding.new"] = 1
            del self.imports[id_]

    def _ended_import(self, id_: str) -> dict[str, Any]:
        """Return an import that has ended, or after a while as it is."""
        for _ in range(_LAST_ATTEMPTS):
            state: dict[str, Any] = self.api.read(f"/imports/{id_}", version=2)["data"]
            if state["status"] in {"completed", "failed"}:
                break
            time.sleep(0.5)
        return state

    def _settle(self, finding: str) -> None:
        """Read a finding whose last request had no answer, once that request can no longer be carried out."""
        belief = self.beliefs[finding]
        if time.monotonic() < belief.doubted_at + _SETTLED_AFTER:
            time.sleep(0.01)
            return
        try:
            code, body = self.api.send("GET", f"/findings/{finding}")
        except OSError:
            return
        if code == http.client.OK:
            self.count("settled")
            state = from_finding(body["data"])
            if state not in belief.states:
                self.fail(f"{finding}: is {state}; expected one of {belief.states}")
            belief.settle(state)

    def _list(self, rng: random.Random) -> None:
        """Read a page; its rows must be as many as its total says."""
        per_page, page = rng.choice([1, 7, 25, 200]), rng.choice([1, 1, 2, 5])
        filters = rng.choice(FILTERS)
        try:
            code, body = self.api.send("GET", "/findings", per_page=per_page, page=page, **filters)
        except OSError:
            return
        if code != http.client.OK:
            return
        self.count("lists")
        total = body["meta"]["total"]
        expected = max(0, min(per_page, total - (page - 1) * per_page))
        if len(body["data"]) != expected:
            self.fail(f"{filters} page {page} of {per_page}: {len(body['data'])} rows of a total of {total}")

    def pause(self) -> None:
        """Stop changing; return when no request is open."""
        self.running.clear()
        for idle in self.idle:
            idle.wait()

    def verify(self, audit: list[dict[str, Any]]) -> None:
        """Compare what was acknowledged with what the service shows now."""
        found, totals = self.api.everything()
        shown = {finding["id"]: finding for finding in found}
        self._compare_total({}, len(found), totals)
        for filters in FILTERS[1:]:
            rows, totals = self.api.everything(**filters)
            self._compare_total(filters, len(rows), totals)
        for id_, belief in self.beliefs.items():
            self.count("compared")
            if id_ not in shown:
                self.fail(f"{id_}: is lost")
            elif (state := from_finding(shown[id_])) not in belief.states:
                self.fail(f"{id_}: is {state}; expected one of {belief.states}")
        self._compare_events(audit)

    def _compare_total(self, filters: dict[str, Any], rows: int, totals: set[int]) -> None:
        self.count("totals")
        if totals != {rows}:
            self.fail(f"{filters}: the total says {totals}, and there are {rows}")

    def _compare_events(self, audit: list[dict[str, Any]]) -> None:
        """Every acknowledged change has its events, and no event arrived twice."""
        for finding, times in list(self.announced.items()):
            if times > 1 and finding in self.beliefs:
                self.fail(f"finding {finding} was announced {times} times")
        for delivery, times in list(self.deliveries.items()):
            self.count("deliveries")
            if times > 1:
                self.fail(f"delivery {delivery} arrived {times} times")
        self.counts["events"] = sum(sum(belief.least_events.values()) for belief in self.beliefs.values())
        self.failures += self.missing_events(audit)

    def missing_events(self, audit: list[dict[str, Any]]) -> list[str]:
        """Return a line for each event of an acknowledged change that has no outcome in the audit trail."""
        ended = Counter(
            (line["detail"]["finding"], line["detail"]["event"])
            for line in audit
            if line["action"] == "webhook.delivery" and "finding" in line["detail"]
        )
        return [
            f"{id_}: {ended[(id_, event)]} of {number} events {event} have an outcome"
            for id_, belief in self.beliefs.items()
            for event, number in belief.least_events.items()
            if ended[(id_, event)] < number
        ]


def _record(report: int, line: int) -> dict[str, Any]:
    """Return a record of a report, as lines of `format=outcrop`."""
    path = f"r{report}-{line}.env"
    return {
        "fingerprint": f"path:{report:06d}{line:02d}",
        "composite_score": (report + line) % 101,
        "source_type": "repo",
        "source_visibility": "public",
        "source_url": f"https://git.example/reports/{report}/blob/main/{path}",
        "repo_full_name": f"reports/{report}",
        "file_path": path,
        "line_number": line + 1,
        "matched_text": "AKIA********WXYZ",
        "pattern": {"name": "AWS access key pair", "secret_type": "aws"},
    }


def receive(
    deliveries: Counter[str], announced: Counter[str], journal: Journal, certificate: Path, key: Path
) -> int:
    """Receive webhooks on loopback, in a thread, and count them; return the port."""
    lock = threading.Lock()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)))
            journal.write(at=time.time(), delivery=self.headers["webhook-id"], event=event["event"])
            with lock:
                deliveries[self.headers["webhook-id"]] += 1
                announced[str((event.get("finding") or {}).get("id"))] += event["event"] == "finding.new"
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Ignore a sender that was killed."""

    server = Server(("127.0.0.1", 0), Receiver)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_port)


def main() -> None:
    """Answer the commands of standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--certificate-key", type=Path, required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    journal, deliveries, announced = Journal(given.journal), Counter[str](), Counter[str]()
    port = receive(deliveries, announced, journal, given.certificate, given.certificate_key)
    answer: dict[str, Any] = {"port": port}
    oracle: Oracle | None = None
    while True:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        command, _, rest = sys.stdin.readline().strip().partition(" ")
        if command == "connect":
            api = Api(rest, sys.stdin.readline().strip())  # no argument: others could read the key there
            oracle = Oracle(api, journal, deliveries, announced, clients=given.clients, seed=given.seed)
        elif oracle is None or command == "quit":
            return
        elif command == "resume":
            oracle.running.set()
        elif command == "pause":
            oracle.pause()
        elif command == "finish":
            oracle.finish()
        elif command == "verify":
            oracle.verify(json.loads(Path(rest).read_text()))
        answer = {"counts": oracle.counts, "failures": oracle.failures}
        if command == "missing":
            answer["missing"] = len(oracle.missing_events(json.loads(Path(rest).read_text())))


if __name__ == "__main__":
    main()
