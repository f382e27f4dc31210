"""Let 20 clients do the same at once: what may happen once happens once, and nothing is half done."""

import hashlib
import hmac
import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar

import httpx

from prove.oracle_model import State, apply
from prove.portal_session import PASSWORD, sign_in, token_in
from prove.service import Answer, Service, open_service, request, until
from prove.trial import Report, Setting
from tests.support.deliveries import HOST, receiver
from tests.support.factories import make_line

CLIENTS = 20
_SLUG = "races"
_ACTIONS = ("resolve", "restrict", "false_positive", "suppress")

T = TypeVar("T")


def try_races(setting: Setting, report: Report) -> None:
    """Run each race, several times if there is time."""
    folder = setting.folder / "receiver"
    folder.mkdir(parents=True)
    with receiver(folder) as hooks:
        egress = {
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": f"{HOST}:443=127.0.0.1:{hooks.port}",
            "OUTCROP_EGRESS_CA_FILE": str(hooks.ca),
        }
        with open_service(setting.folder / "service", **egress) as service:
            service.serve("--processes", "2")
            key = service.account(_SLUG)
            owner = sign_in(service, _SLUG, "owner")
            deadline = setting.deadline()
            while True:
                _race_for_a_finding(service, key, report)
                _race_in_bulk(service, key, report)
                _race_of_imports(service, key, report)
                _race_for_a_key(service, owner.client, report)
                _race_for_an_invitation(service, owner.client, report)
                report.count("rounds")
                if time.monotonic() > deadline:
                    break
            _race_for_the_webhook(service, owner.client, hooks, report)


def at_once(work: Callable[[int], T]) -> list[T]:
    """Call `work` with 0 to 19 from as many threads at the same time; return the results."""
    barrier = Barrier(CLIENTS)

    def run(number: int) -> T:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(run, range(CLIENTS)))


def _patiently(send: Callable[[], Answer]) -> Answer:
    """Send until the answer is not "busy": only a few requests of one account run at once."""
    while (answer := send()).status == httpx.codes.SERVICE_UNAVAILABLE:
        pass
    return answer


def _import(service: Service, number: int) -> list[str]:
    """Import new findings; return their ids."""
    lines = [
        make_line(validation_status="unvalidated", file_path=f"{uuid.uuid4()}.env") for _ in range(number)
    ]
    service.command(
        "import", "--account", _SLUG, "-", stdin="".join(json.dumps(line) + "\n" for line in lines)
    )
    return [str(line["id"]) for line in lines]


def _race_for_a_finding(service: Service, key: str, report: Report) -> None:
    """Send different actions for one finding; the audit trail must explain the answers and the result."""
    (finding,) = _import(service, 1)
    answers = at_once(
        lambda n: _patiently(
            lambda: service.post(
                f"/findings/{finding}/{_ACTIONS[n % 4]}", key, **({} if n % 4 == 3 else {"note": f"n{n}"})
            )
        )
    )
    report.check({a.status for a in answers} <= {200, 400}, f"{Counter(a.status for a in answers)}")
    trail = service.command("audit", "--account", _SLUG, "--target", finding)
    state = State("active", None, suppressed=False)
    for line in trail:
        action = line["action"].removeprefix("finding.")
        if action in _ACTIONS:
            note = (line["detail"] or {}).get("note")
            effect = apply(state, action, note)
            report.check(
                effect.code == 200 and effect.state != state, f"{action} in {state} is in the audit trail"
            )
            state = effect.state
    shown = service.get(f"/findings/{finding}", key).json["data"]
    got = (shown["status"], shown["suppressed_at"] is not None)
    report.check(got == (state.status, state.suppressed), f"is {got}; the audit trail says {state}")


def _race_in_bulk(service: Service, key: str, report: Report) -> None:
    """Resolve the same findings in bulk: each is changed once."""
    ids = _import(service, 25)
    body = json.dumps({"action": "resolve", "ids": ids}).encode()
    answers = at_once(
        lambda _: _patiently(
            lambda: request(service.base_url, "POST", "/api/v2/findings/bulk", key=key, body=body)
        )
    )
    report.check({a.status for a in answers} == {200}, f"bulk: {Counter(a.status for a in answers)}")
    changed = sum(a.json["meta"]["changed"] for a in answers if a.status == 200)
    report.check(changed == len(ids), f"bulk: {changed} changes of {len(ids)} findings")


def _race_of_imports(service: Service, key: str, report: Report) -> None:
    """Upload one report with one idempotency key, and the same report with 20."""
    line = make_line(matched_text="AKIA********RACE") | {"fingerprint": f"path:{uuid.uuid4().hex[:8]}"}
    body, name = json.dumps(line).encode(), uuid.uuid4().hex

    def upload(number: int, *, same: bool) -> Answer:
        headers = {"Idempotency-Key": name if same else f"{name}-{number}"}
        return _patiently(
            lambda: request(
                service.base_url,
                "POST",
                "/api/v2/imports?format=outcrop",
                key=key,
                body=body,
                headers=headers,
            )
        )

    answers = at_once(lambda n: upload(n, same=True))
    ids = {a.json["data"]["id"] for a in answers if a.status == 202}
    report.check(
        {a.status for a in answers} == {202} and len(ids) == 1,
        f"imports with one key: {Counter(a.status for a in answers)}, {len(ids)} imports",
    )
    more = at_once(lambda n: upload(n, same=False))
    ids |= {a.json["data"]["id"] for a in more if a.status == 202}
    report.check(len(ids) == CLIENTS + 1, f"{len(ids)} imports of {CLIENTS + 1}")
    states = [_ended_import(service, key, id_) for id_ in ids]
    new = sum(state["findings_new"] for state in states)
    report.check(
        all(s["status"] == "completed" for s in states), f"imports are {Counter(s['status'] for s in states)}"
    )
    report.check(new == 1, f"one finding was new {new} times")


def _ended_import(service: Service, key: str, id_: str) -> dict[str, Any]:
    """Wait for the end of an import, and return it."""

    def probe() -> dict[str, Any] | None:
        state: dict[str, Any] = request(service.base_url, "GET", f"/api/v2/imports/{id_}", key=key).json[
            "data"
        ]
        return state if state["status"] in {"completed", "failed"} else None

    return until(probe, "the end of an import")


def _form(client: httpx.Client, path: str, token: str, **fields: str) -> httpx.Response:
    """Send a form of the portal on a connection of its own; retry while the service is busy."""
    while True:
        with httpx.Client(
            base_url=client.base_url, cookies=client.cookies, timeout=60, trust_env=False
        ) as own:
            headers = {"Origin": str(client.base_url).rstrip("/"), "Accept": "text/html"}
            answer = own.post(path, data={"csrf": token} | fields, headers=headers)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            return answer


def _race_for_a_key(service: Service, client: httpx.Client, report: Report) -> None:
    """Revoke one key from all clients."""
    key = service.command("key", "create", "--account", _SLUG, "--name", "race")
    token = token_in(client.get("/profile/keys").text)
    answers = at_once(lambda _: _form(client, f"/profile/keys/{key['id']}/revoke", token))
    report.check(
        all(a.status_code < 500 for a in answers), f"revoking: {Counter(a.status_code for a in answers)}"
    )
    trail = service.command("audit", "--account", _SLUG, "--target", key["id"], "--action", "key.revoke")
    report.check(len(trail) == 1, f"a key was revoked {len(trail)} times")
    answer = service.get("/findings", key["key"])
    report.check(answer.json == {"error": "revoked_token"}, f"a revoked key is answered {answer.status}")


def _race_for_an_invitation(service: Service, client: httpx.Client, report: Report) -> None:
    """Accept one invitation from all clients: there is one member."""
    email = f"{uuid.uuid4().hex[:8]}@races.example"
    link = service.command("user", "invite", "--account", _SLUG, email)["link"]
    path = httpx.URL(link).path

    def accept(_: int) -> int:
        """Open the link and send its form until it is answered other than "try again"."""
        while True:
            with httpx.Client(base_url=client.base_url, timeout=60, trust_env=False) as own:
                page = own.get(path)
                if page.status_code != httpx.codes.OK:
                    return page.status_code
                answer = _form(own, path, token_in(page.text), password=PASSWORD, again=PASSWORD)
            if answer.status_code != httpx.codes.BAD_REQUEST:
                return answer.status_code

    codes = Counter(at_once(accept))
    members = [m["email"] for m in service.command("user", "list", "--account", _SLUG)]
    report.check(members.count(email) == 1, f"{members.count(email)} members accepted one invitation")
    report.check(codes[303] == 1 and set(codes) <= {303, 404}, f"accepting was answered {codes}")


def _race_for_the_webhook(service: Service, client: httpx.Client, hooks: Any, report: Report) -> None:
    """Save the webhook from all clients: exactly one of the shown secrets signs from then on."""
    token = token_in(client.get("/profile/webhook").text)
    answers = at_once(lambda _: _form(client, "/profile/webhook", token, url=f"https://{HOST}/in"))
    secrets = {found[1] for a in answers if (found := re.search(r">([0-9a-f]{64})</code>", a.text))}
    report.check(
        all(a.status_code < 500 for a in answers), f"saving: {Counter(a.status_code for a in answers)}"
    )
    seen = len(hooks.requests)
    service.run("webhook", "test", "--account", _SLUG)
    until(lambda: len(hooks.requests) > seen, "the test event")
    event = hooks.requests[-1]
    headers = {name.lower(): value for name, value in event.headers.items()}
    signing = [
        secret
        for secret in secrets
        if headers["x-service-signature"]
        == "sha256=" + hmac.new(secret.encode(), event.body, hashlib.sha256).hexdigest()
    ]
    report.check(len(signing) == 1, f"{len(signing)} of {len(secrets)} shown secrets sign")
