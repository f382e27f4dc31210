"""Ask for everything of another account: every route, page, form and command, with every role and without."""

import json
import re
import uuid
from collections.abc import Iterable
from typing import Any

import httpx

from prove.portal_session import PortalSession, sign_in, sign_in_once_more
from prove.service import Answer, Service, open_service, request, until
from prove.trial import Report, Setting
from tests.docs.inventory import (
    api_routes,
    api_v2_routes,
    arguments_of,
    commands,
    options_of,
    portal_routes,
)
from tests.support.factories import make_line

_OPEN_PAGES = {"/sign-in", "/static/{address:path}", "/join/{token}"}
_OPEN_FORMS = {"/sign-in", "/join/{token}", "/sign-out"}
_OPEN_API = {"/healthz", "/readyz", "/openapi.json", "/api/v2/openapi.json"}
_NO_IDS = ("/export/", "/numbers/")  # pages whose parameter is a format or a table
_ROLES = ("owner", "admin", "member")
# What routes need beside their id: without it, they refuse a request before they look for the id.
_QUERIES = {"assign": "?assignee=", "comments": "?text=x"}
# What the commands with an account and an id are called with; a new one has to be added.
_COMMANDS = {
    "hook remove": "hook",
    "assignment remove": "assignment",
    "suppression remove": "rule",
    "finding": "finding",
    "target run": "target",
    "target remove": "target",
    "webhook again": "delivery",
}


# The kinds of ids in the paths of the API.
_KINDS = {"finding", "scan", "import", "incident"}


def unknown_surface() -> list[str]:
    """Return the routes of the API and the commands that take an id and that this trial does not know."""
    routes = [
        path
        for _, path in sorted({*api_routes(), *api_v2_routes()})
        for name in re.findall(r"\{(\w+)", path)
        if name.removesuffix("_id") not in _KINDS
    ]
    return routes + [f"outcrop {name}" for name in _commands_with_ids() if name not in _COMMANDS]


def _commands_with_ids() -> list[str]:
    """Return the names of the commands that take an account and an id."""
    return [
        name
        for name, command in commands().items()
        if any("ID" in argument for argument in arguments_of(command)) and "--account" in options_of(command)
    ]


class World:
    """Two accounts with the same things in both."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.keys = {slug: service.account(slug) for slug in ("ours", "theirs")}
        self.people: dict[str, PortalSession] = {}
        for slug, key in self.keys.items():
            self._fill(slug, key)
        for role in _ROLES:
            self.people[role] = sign_in(service, "ours", role)
        self.other = sign_in(service, "theirs", "owner")
        self._fill_portal()
        self.ids = self._ids("theirs")
        self.own_ids = self._ids("ours")

    def _fill(self, slug: str, key: str) -> None:
        """Give an account findings, a target, a run, a webhook, a delivery, an import and an invitation."""
        service = self.service
        lines = "".join(
            json.dumps(make_line(repo_full_name=f"{slug}/shop", file_path=f"{slug}.env")) + "\n"
            for _ in range(3)
        )
        service.command("webhook", "set", "--account", slug, f"https://{slug}.example/in")
        service.command("import", "--account", slug, "-", stdin=lines)
        target = service.command("target", "add", "--account", slug, f"https://git.example/{slug}/shop.git")
        service.command("target", "run", "--account", slug, target["id"])
        finding = service.findings(key)[0]["id"]
        service.post(f"/findings/{finding}/resolve", key)
        report = json.dumps(make_line() | {"id": None, "secret": None}).encode()
        request(service.base_url, "POST", "/api/v2/imports?format=outcrop", key=key, body=report)
        service.run("user", "invite", "--account", slug, f"new@{slug}.example")

    def _fill_portal(self) -> None:
        """Give the other account what only the portal makes.

        That is a member, a second session, a saved view, and an action on all findings that match.
        """
        member = sign_in(self.service, "theirs", "member")
        member.client.close()
        sign_in_once_more(self.service, self.other.email)
        self.other.post("/views", {"name": "a view", "query": "status=active"})
        form = {"action": "reopen", "view": "status=resolved", "total": "1"}
        self.bulk = self.other.post("/findings/bulk", form).headers["Location"]
        until(lambda: "Completed" in self.other.get(self.bulk).text, "the end of the action on all findings")
        until(lambda: not self._open_deliveries("theirs"), "an outcome of the deliveries")

    def _open_deliveries(self, slug: str) -> list[dict[str, Any]]:
        log = self.service.command("webhook", "log", "--account", slug)
        return [delivery for delivery in log if delivery["state"] in {"waiting", "sending"}]

    def _ids(self, slug: str) -> dict[str, str]:
        """Return the id of one thing of each kind."""
        key = self.keys[slug]
        service = self.service
        found = {
            "finding": service.findings(key, status="active")[0]["id"],
            "scan": service.get("/scans", key).json["data"][0]["id"],
            "target": service.command("target", "list", "--account", slug)[0]["id"],
            "import": request(service.base_url, "GET", "/api/v2/imports", key=key).json["data"][0]["id"],
            "delivery": service.command("webhook", "log", "--account", slug)[0]["id"],
        }
        found["incident"] = service.get("/incidents", key).json["data"][0]["id"]
        found["hook"] = service.command("hook", "create", "--account", slug, "github")["id"]
        rule = ("--path", "nothing/*", "--reason", "a trial")
        found["rule"] = service.command("suppression", "add", "--account", slug, *rule)["id"]
        owner = self.other if slug == "theirs" else self.people["owner"]
        assign = ("--path", "nothing/*", "--assignee", owner.email)
        found["assignment"] = service.command("assignment", "add", "--account", slug, *assign)["id"]
        return found

    def state(self, slug: str) -> str:
        """Return everything of an account that a stranger could have changed, as text."""
        service, key = self.service, self.keys[slug]
        shown = [
            service.findings(key),
            service.get("/scans", key).json["data"],
            *(
                service.command(*name.split(), "--account", slug)
                for name in (
                    *("target list", "key list", "user list", "webhook show"),
                    *("hook list", "suppression list", "assignment list"),
                )
            ),
        ]
        ignored = re.compile(r'"(last_used_at|last_ok|waiting|started_at|status|progress)": [^,}]*')
        return ignored.sub("", json.dumps(shown, sort_keys=True)) + json.dumps(
            [f["status"] for f in shown[0]]
        )


def try_isolation(setting: Setting, report: Report) -> None:
    """Ask for everything of the other account, and check that nothing of it is shown or changed."""
    with open_service(setting.folder / "service", OUTCROP_EGRESS_CLOSED="true") as service:
        service.serve()
        world = World(service)
        before = world.state("theirs")
        _try_api(world, report)
        _try_portal(world, report)
        _try_commands(world, report)
        report.check(world.state("theirs") == before, "the other account was changed")


# --- the API


def _try_api(world: World, report: Report) -> None:
    """Call every route without a key, with wrong ones, and with the ids of the other account."""
    service = world.service
    revoked = service.command("key", "create", "--account", "ours", "--name", "revoked")
    service.run("key", "revoke", revoked["id"])
    service.command("account", "create", "small", "--plan", "starter", "--email", "s@small.example")
    starter = service.command("key", "create", "--account", "small", "--name", "ci")["key"]
    for method, path in sorted({*api_routes(), *api_v2_routes()}):
        if path in _OPEN_API:
            continue
        own = _fill_path(path, world.own_ids, report)
        for key, status, error in (
            (None, 401, "missing_authorization"),
            ("outcrop_wrong", 401, "invalid_token"),
            (revoked["key"], 401, "revoked_token"),
            (starter, 403, "plan_required"),
        ):
            answer = request(service.base_url, method, own, key=key)
            got = (answer.status, answer.json.get("error"))
            report.check(got == (status, error), f"{method} {path} with {error}: {got}")
        cookie = world.people["owner"].client.request(method, own)
        report.check(cookie.status_code == 401, f"{method} {path}: a cookie of the portal is accepted")
        if "{" in path:
            foreign, random_ids = dict(world.ids), {kind: str(uuid.uuid4()) for kind in world.ids}
            answers = [
                request(service.base_url, method, _fill_path(path, ids, report), key=world.keys["ours"])
                for ids in (foreign, random_ids)
            ]
            report.check(
                answers[0].status == 404 and answers[0].body == answers[1].body,
                f"{method} {path}: {answers[0].status} for a foreign id, {answers[1].status} for an unknown",
            )
        elif method == "GET":
            answer = request(service.base_url, method, path, key=world.keys["ours"])
            report.check(not _shows_other(answer.body.decode(), world), f"{path} shows the other account")
    bulk = json.dumps({"action": "resolve", "ids": [world.ids["finding"]]}).encode()
    answer = request(service.base_url, "POST", "/api/v2/findings/bulk", key=world.keys["ours"], body=bulk)
    report.check(_is_not_found(answer), f"bulk with a foreign id: {answer.status} {answer.body[:200]!r}")


def _is_not_found(answer: Answer) -> bool:
    return answer.status == httpx.codes.OK and answer.json["data"][0]["outcome"] == "not_found"


def _fill_path(path: str, ids: dict[str, str], report: Report) -> str:
    """Return a path with the ids in place of its parameters; a parameter that is not known is a failure."""

    def fill(found: "re.Match[str]") -> str:
        kind = found[1].removesuffix("_id")
        report.check(kind in ids, f"{path}: no trial knows the parameter {found[1]}")
        return ids.get(kind, str(uuid.uuid4()))

    return re.sub(r"\{(\w+)(?::\w+)?\}", fill, path) + _QUERIES.get(path.rpartition("/")[2], "")


def _shows_other(text: str, world: World, address: str = "") -> bool:
    """Whether a text names the other account or one of its things, except what the address itself names."""
    return "theirs" in text or any(id_ in text and id_ not in address for id_ in world.ids.values())


# --- the portal


def _try_portal(world: World, report: Report) -> None:
    """Open every page and send every form: signed out, with an ended session, and with ids of the others."""
    pages, forms = world.other.crawl()
    concrete = _concrete(set(pages) | forms | {world.bulk, f"{world.bulk}/stop"})
    ended = _ended_session(world)
    nobody = httpx.Client(base_url=world.service.base_url, trust_env=False, timeout=60)
    for method, path in sorted(portal_routes()):
        if path in (_OPEN_PAGES if method == "GET" else _OPEN_FORMS):
            continue
        examples = concrete.get((method, path)) or ([path] if "{" not in path else [])
        if not examples:
            report.check(holds=False, failure=f"{method} {path}: no page of the example account leads there")
            continue
        for address in examples[:2]:
            for who, client in (("nobody", nobody), ("an ended session", ended)):
                answer = client.request(method, address, headers={"Origin": world.service.base_url})
                at_sign_in = answer.headers.get("Location", "").startswith("/sign-in")
                refused = answer.status_code in {401, 403} or (answer.status_code == 303 and at_sign_in)
                report.check(refused, f"{method} {path} for {who}: {answer.status_code}")
            if "{" in path:
                _try_foreign(world, method, path, address, report)
    for role, person in world.people.items():
        shown, _ = person.crawl()
        for path, text in shown.items():
            report.check(not _shows_other(text, world), f"{path} shows the other account to the {role}")


def _try_foreign(world: World, method: str, path: str, address: str, report: Report) -> None:
    """Open a page of the other account, or send its form, with each role."""
    if path.startswith(_NO_IDS):
        return
    unknown = re.sub(r"[0-9a-f-]{36}", str(uuid.uuid4()), address)
    for role, person in world.people.items():
        send = person.get if method == "GET" else person.post
        answer, expected = send(address), send(unknown)
        report.check(
            answer.status_code == expected.status_code >= httpx.codes.BAD_REQUEST
            and not _shows_other(answer.text, world, address),
            f"{method} {path} of the other account for the {role}: {answer.status_code},"
            f" for an unknown id {expected.status_code}",
        )


def _concrete(addresses: Iterable[str]) -> dict[tuple[str, str], list[str]]:
    """Return the addresses by the route that they belong to."""
    found: dict[tuple[str, str], list[str]] = {}
    for method, path in portal_routes():
        pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", re.sub(r"\{\w+:path\}", ".+", path)))
        for address in sorted(addresses):
            if (
                "{" in path
                and pattern.fullmatch(address)
                and (any(map(_looks_like_id, address.split("/"))) or path.startswith(_NO_IDS))
            ):
                found.setdefault((method, path), []).append(address)
    return found


def _looks_like_id(part: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f-]{36}|\d+", part))


def _ended_session(world: World) -> httpx.Client:
    """Return a client with the cookies of a session that has ended."""
    person = sign_in_once_more(world.service, world.people["member"].email)
    copy = httpx.Client(
        base_url=world.service.base_url, trust_env=False, timeout=60, cookies=person.client.cookies
    )
    person.post("/sign-out")
    return copy


# --- the commands


def _try_commands(world: World, report: Report) -> None:
    """Call every command that takes an account and an id with an id of the other account."""
    report.check(not unknown_surface(), f"no trial knows {unknown_surface()}")
    for name in _commands_with_ids():
        kind = _COMMANDS[name]
        outputs = [_refusal(world.service, name, id_) for id_ in (world.ids[kind], str(uuid.uuid4()))]
        report.check(outputs[0] == outputs[1], f"outcrop {name}: {outputs}")


def _refusal(service: Service, name: str, id_: str) -> Any:
    """Return the message of a command that must fail with exit code 2, without the id."""
    try:
        service.run(*name.split(), "--account", "ours", id_, codes=())
    except RuntimeError as error:
        return str(error).replace(id_, "ID")
    return "it succeeded"
