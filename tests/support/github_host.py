"""A fake of GitHub's REST API on loopback, with pages, ETags, rate limits and failures.

Names, status codes and headers follow GitHub's documentation. Tests set what only the real GitHub does, such
as limits per minute and replication delays. `tests/support/git_host.py` serves the repositories.
"""

import asyncio
import hashlib
import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from outcrop.net.guard import Egress
from tests.support.tls import make_certificate

NAME = "api.git.example"
DOCS = "https://docs.github.com/rest"
FIRST_DAY = 1_700_000_000
SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."

Json = dict[str, Any]
_OWNER_FIELDS = ("login", "id", "node_id", "type", "site_admin", "html_url")


@dataclass
class Fault:
    """A response in place of the correct one."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False  # close the connection in the middle of the body
    path: str = ""  # only for requests whose path contains this


def error(status: int, message: str, **more: Any) -> Fault:
    """Return an error response as GitHub formats it, with these further fields."""
    return Fault(
        status,
        json.dumps({"message": message, "documentation_url": DOCS, "status": str(status), **more}).encode(),
    )


def secondary_limit(status: int = 403, retry_after: int | None = None) -> Fault:
    """Return the response for a secondary rate limit, with Retry-After if a number of seconds is given."""
    response = error(status, SECONDARY)
    response.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return response


@dataclass
class ApiRequest:
    """A request that the host received, and the status that it sent."""

    method: str
    path: str  # with the query
    headers: dict[str, str]
    status: int = 0
    body: bytes = b""


@dataclass
class GitHubHost:
    """The repositories, gists and users of a host, and its behaviour. Tests may change all fields."""

    repos: dict[str, Json] = field(default_factory=dict)  # full name → repository
    gists: dict[str, Json] = field(default_factory=dict)
    users: dict[str, Json] = field(default_factory=dict)  # login → user or organisation
    # organisation → logins of the members, who see its private repositories
    members: dict[str, set[str]] = field(default_factory=dict)
    # token → login; None for the token of an app, which belongs to no user
    tokens: dict[str, str | None] = field(default_factory=dict)
    scopes: dict[str, str] = field(default_factory=dict)  # classic token → its scopes, as the header has them
    # full name → ids of commits; an empty list is an empty repository
    commits: dict[str, list[str]] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)  # former full name, in lower case → id
    blocked: dict[str, int] = field(default_factory=dict)  # full name → 451 or 403
    faults: deque[Fault] = field(default_factory=deque)  # for the next requests, in this order
    lifetimes: dict[str, int] = field(default_factory=dict)  # token → requests until it is revoked
    # full name → what people wrote, by the path of the list: issues, issues/comments, pulls/comments
    texts: dict[str, dict[str, list[Json]]] = field(default_factory=dict)
    pulls: dict[str, list[Json]] = field(default_factory=dict)  # full name → pull requests
    events: dict[str, list[Json]] = field(default_factory=dict)  # path of the list → events, newest first
    poll_interval: int = 60
    clone_base: str = "https://git.example"
    limit: int = 5_000
    limit_status: int = 403
    window: int = 3_600
    moved_status: int = 301
    link_on_304: bool = True
    next_link: str | None = None  # in place of the correct one
    delay: float = 0.0  # seconds before every response
    clock: Callable[[], float] = time.time
    port: int = 0
    ca: Path | None = None
    prefix: str = ""  # /api/v3 for an Enterprise Server
    used: int = 0
    reset: int = 0
    requests: list[ApiRequest] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return (f"https://{NAME}" if self.ca else f"http://127.0.0.1:{self.port}") + self.prefix

    @property
    def egress(self) -> Egress:
        return Egress.parse(["127.0.0.0/8"], [f"{NAME}:443=127.0.0.1:{self.port}"], self.ca)

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def add_user(self, login: str, *, organisation: bool = False, members: tuple[str, ...] = ()) -> Json:
        """Add a user, or an organisation with these members."""
        number = 1_000 + len(self.users)
        kind = "Organization" if organisation else "User"
        user = {
            "login": login,
            "id": number,
            "node_id": f"U_{number}",
            "type": kind,
            "site_admin": False,
            "name": login,
        }
        user |= {
            "url": f"{self.base_url}/users/{login}",
            "html_url": f"https://github.example/{login}",
            "public_repos": 0,
            "public_gists": 0,
        }
        self.users[login] = user
        self.members[login] = set(members)
        return user

    def add_repo(
        self,
        full_name: str,
        *,
        visibility: str = "public",
        commits: tuple[str, ...] | None = None,
        **fields: Any,
    ) -> Json:
        """Add a repository, and its owner if there is none. Without `commits` it has one made-up commit."""
        login, _, name = full_name.partition("/")
        owner = self.users.get(login) or self.add_user(login)
        number = 50_000 + len(self.repos)
        repo = {
            "id": number,
            "node_id": f"R_{number}",
            "name": name,
            "full_name": full_name,
            "owner": {key: owner[key] for key in _OWNER_FIELDS},
            "private": visibility != "public",
            "visibility": visibility,
            "html_url": f"https://github.example/{full_name}",
            "url": f"{self.base_url}/repos/{full_name}",
            "clone_url": f"{self.clone_base}/{full_name}.git",
            "description": None,
            "fork": False,
            "archived": False,
            "disabled": False,
            "has_wiki": True,
            "size": 108,
            "default_branch": "main",
            "created_at": stamp(len(self.repos)),
            "updated_at": stamp(len(self.repos) + 1),
            "pushed_at": stamp(len(self.repos) + 1),
        }
        self.repos[full_name] = repo | fields
        self.commits[full_name] = (
            [hashlib.sha1(full_name.encode()).hexdigest()] if commits is None else list(commits)
        )
        return self.repos[full_name]

    def add_gist(
        self, login: str | None, *, public: bool = True, files: dict[str, str] | None = None
    ) -> Json:
        """Add a gist, and its owner if there is none; without a login the gist is anonymous."""
        owner = None if login is None else self.users.get(login) or self.add_user(login)
        gist_id = hashlib.md5(str(len(self.gists)).encode()).hexdigest()
        gist = {
            "id": gist_id,
            "node_id": f"G_{gist_id}",
            "url": f"{self.base_url}/gists/{gist_id}",
            "git_pull_url": f"{self.clone_base}/gist/{gist_id}.git",
            "git_push_url": f"{self.clone_base}/gist/{gist_id}.git",
            "html_url": f"https://gist.github.example/{gist_id}",
            "public": public,
            "created_at": stamp(len(self.gists)),
            "updated_at": stamp(len(self.gists) + 1),
            "description": None,
            "comments": 0,
            "truncated": False,
            "owner": owner and {key: owner[key] for key in _OWNER_FIELDS},
            "files": {
                name: {
                    "filename": name,
                    "type": "text/plain",
                    "language": None,
                    "size": len(text),
                    "content": text,
                }
                for name, text in (files or {"a.txt": "text"}).items()
            },
        }
        self.gists[gist_id] = gist
        return gist

    def add_text(
        self, full_name: str, listing: str, number: int, body: str, *, day: int = 1, **fields: Any
    ) -> Json:
        """Add an issue with this number, or to a list of comments a comment on that issue."""
        lists = self.texts.setdefault(full_name, {"issues": [], "issues/comments": [], "pulls/comments": []})
        url = f"https://github.example/{full_name}/issues/{number}"
        text = {"id": 900 + sum(map(len, lists.values())), "body": body, "user": {"login": "jo"}}
        text |= {"created_at": stamp(day), "updated_at": stamp(day)}
        if listing == "issues":
            text |= {"number": number, "title": "Title", "html_url": url}
        else:
            text |= {"html_url": f"{url}#comment-{text['id']}"}
        lists[listing].append(text | fields)
        return lists[listing][-1]

    def _texts(self, request: web.BaseRequest, name: str, rest: list[str]) -> Fault:
        """Return a list of texts, those since a time, or one text."""
        lists, path = self.texts.get(name, {}), "/".join(rest)
        if path in {"issues", "pulls", "issues/comments", "pulls/comments"}:
            since = request.query.get("since", "")
            found = [text for text in lists.get(path, []) if text["updated_at"] >= since]
            return self._page(request, found, request.path.removeprefix(self.prefix))
        listing, _, number = path.rpartition("/")
        key = "number" if listing == "issues" else "id"
        found = [text for text in lists.get(listing, []) if str(text[key]) == number]
        return _json(found[0]) if found else error(404, "Not Found")

    def add_event(self, path: str, full_name: str, head: str, ref: str = "refs/heads/main") -> Json:
        """Add a push to the list of events at a path; return the event."""
        repo = {"id": self.repos[full_name]["id"], "name": full_name}
        event = {"id": str(10_000 + sum(map(len, self.events.values()))), "type": "PushEvent", "repo": repo}
        event |= {"actor": {"login": "ada"}, "payload": {"ref": ref, "head": head}}
        self.events.setdefault(path, []).insert(0, event)
        return event

    def rename(self, old: str, new: str) -> None:
        """Rename a repository; requests for the old name are redirected."""
        repo = self.repos.pop(old)
        self.moved[old.lower()] = repo["id"]
        self.commits[new] = self.commits.pop(old)
        self.repos[new] = repo | {
            "name": new.partition("/")[2],
            "full_name": new,
            "clone_url": f"{self.clone_base}/{new}.git",
            "html_url": f"https://github.example/{new}",
        }

    # --- Responses

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle a request: record it, then send the next fault or the correct response."""
        headers = dict(request.headers)
        recorded = ApiRequest(request.method, request.path_qs, headers, body=await request.read())
        self.requests.append(recorded)
        if self.delay:
            await asyncio.sleep(self.delay)
        fault = next((fault for fault in self.faults if fault.path in recorded.path), None)
        if fault is not None:
            self.faults.remove(fault)
        response = fault or self.respond(request)
        recorded.status = response.status
        if response.cut:
            return await _send_cut(request, response)
        # Every response has the headers of the rate limit, unless a fault has its own.
        return web.Response(
            status=response.status,
            body=response.body,
            headers=self._rate_headers() | _content_type(response) | response.headers,
        )

    def respond(self, request: web.BaseRequest) -> Fault:
        """Check the token and the rate limit, and return the resource or 304."""
        if not request.headers.get("User-Agent"):
            return error(403, "Request forbidden by administrative rules.")
        raw = request.headers.get("Authorization", "")
        token = raw.removeprefix("Bearer ").removeprefix("token ")
        if raw and (token not in self.tokens or self.lifetimes.get(token, 1) <= 0):
            return error(401, "Bad credentials")
        if token in self.lifetimes:
            self.lifetimes[token] -= 1
        if self.clock() >= self.reset:
            self.used, self.reset = 0, int(self.clock()) + self.window
        if self.used >= self.limit:
            return error(
                self.limit_status, f"API rate limit exceeded for {'user ID 1' if raw else '127.0.0.1'}."
            )
        response = self._route(request, self.tokens.get(token) if raw else None)
        if token in self.scopes:
            response.headers["X-OAuth-Scopes"] = self.scopes[token]
        if response.status == 200:
            # As on GitHub, an ETag is valid for one token, and covers the body but not the Link header.
            etag = 'W/"' + hashlib.sha256(raw.encode() + response.body).hexdigest() + '"'
            response.headers |= {
                "ETag": etag,
                "Vary": "Accept, Authorization",
                "Cache-Control": "private, max-age=60, s-maxage=60",
            }
            if request.headers.get("If-None-Match") == etag:
                response.status, response.body = 304, b""
                if not self.link_on_304:
                    response.headers.pop("Link", None)
        self.used += response.status != 304 or not raw
        return response

    def _rate_headers(self) -> dict[str, str]:
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(self.limit - self.used, 0)),
            "X-RateLimit-Used": str(self.used),
            "X-RateLimit-Reset": str(self.reset),
            "X-RateLimit-Resource": "core",
            "Date": formatdate(self.clock(), usegmt=True),
        }

    def _route(self, request: web.BaseRequest, login: str | None) -> Fault:
        """Return the resource of a path for the user `login`."""
        if not request.path.startswith(self.prefix + "/"):
            return error(404, "Not Found")
        path = request.path.removeprefix(self.prefix).strip("/")
        if path in self.events:
            response = self._page(request, self.events[path], f"/{path}")
            response.headers["X-Poll-Interval"] = str(self.poll_interval)
            return response
        match path.split("/"):
            case ["user"]:
                return (
                    _json(self.users[login])
                    if login
                    else error(403, "Resource not accessible by integration")
                )
            case ["user", "repos"]:
                return self._page(request, self._sorted(request, self._owned(login, login)), "/user/repos")
            case ["users", name]:
                return _json(found) if (found := self._user(name)) else error(404, "Not Found")
            case ["orgs" | "organizations" | "users" | "user", name, "repos"]:
                return self._listed(request, name, login)
            case ["gists"]:
                return self._page(request, self._gists(login, secret=True), "/gists")
            case ["users" | "user", name, "gists"]:
                user = self._user(name)
                gists = self._gists(user["login"], secret=False) if user else []
                return (
                    self._page(request, gists, f"/user/{user['id']}/gists")
                    if user
                    else error(404, "Not Found")
                )
            case ["gists", gist_id]:
                return _json(self.gists[gist_id]) if gist_id in self.gists else error(404, "Not Found")
            case ["repositories", number, *rest]:
                named = [name for name, repo in self.repos.items() if str(repo["id"]) == number]
                return self._repo(request, named[0], rest, login) if named else error(404, "Not Found")
            case ["repos", owner, name, *rest]:
                return self._repo(request, f"{owner}/{name}", rest, login)
        return error(404, "Not Found")

    def _user(self, name: str) -> Json | None:
        """Return a user by login, in any case, or by id, which the links between pages contain."""
        return next(
            (
                user
                for user in self.users.values()
                if name.lower() in {user["login"].lower(), str(user["id"])}
            ),
            None,
        )

    def _sees(self, repo: Json, login: str | None) -> bool:
        """Whether the user `login` may see a repository."""
        owner = repo["owner"]["login"]
        return not repo["private"] or (login is not None and (login == owner or login in self.members[owner]))

    def _owned(self, owner: str | None, login: str | None) -> list[Json]:
        """Return the repositories of an owner that the user `login` may see."""
        return [
            repo
            for repo in self.repos.values()
            if repo["owner"]["login"] == owner and self._sees(repo, login)
        ]

    def _listed(self, request: web.BaseRequest, name: str, login: str | None) -> Fault:
        """Return a page of the repositories of a user or organisation."""
        user = self._user(name)
        organisation = "/org" in request.path
        if user is None or (user["type"] == "Organization") < organisation:
            return error(404, "Not Found")
        # The list of a user has public repositories only, also for the user's own token.
        found = self._owned(user["login"], login if user["type"] == "Organization" else None)
        return self._page(
            request,
            self._sorted(request, found),
            f"/{'organizations' if organisation else 'user'}/{user['id']}/repos",
        )

    def _sorted(self, request: web.BaseRequest, repos: list[Json]) -> list[Json]:
        """Sort repositories as the query of the request says."""
        key = {"created": "created_at", "updated": "updated_at", "pushed": "pushed_at"}.get(
            request.query.get("sort", ""), "full_name"
        )
        descending = request.query.get("direction", "asc" if key == "full_name" else "desc") == "desc"
        return sorted(repos, key=lambda repo: repo[key] or "", reverse=descending)

    def _gists(self, login: str | None, *, secret: bool) -> list[Json]:
        """Return the gists of a user, or without a login everybody's public ones, without their contents."""
        found = [
            gist
            for gist in self.gists.values()
            if login is None or (gist["owner"] or {}).get("login") == login
        ]
        return [
            gist
            | {
                "files": {
                    name: {k: v for k, v in file.items() if k != "content"}
                    for name, file in gist["files"].items()
                }
            }
            for gist in reversed(found)
            if gist["public"] or (secret and login)
        ]

    def _repo(self, request: web.BaseRequest, full_name: str, rest: list[str], login: str | None) -> Fault:
        """Return a repository or its commits, or a redirect from its former name."""
        if number := self.moved.get(full_name.lower()):
            target = "/".join([f"{self.base_url}/repositories/{number}", *rest])
            response = error(self.moved_status, "Moved Permanently", url=target)
            query = f"?{request.query_string}" if request.query_string else ""
            response.headers = {"Location": target + query}
            return response
        name = next((name for name in self.repos if name.lower() == full_name.lower()), "")
        if not name or not self._sees(self.repos[name], login):
            return error(404, "Not Found")
        if name in self.blocked:
            block = {
                "reason": "dmca" if self.blocked[name] == 451 else "tos",
                "created_at": stamp(0),
                "html_url": "https://github.example/tos",
            }
            return error(self.blocked[name], "Repository access blocked", block=block)
        match rest:
            case []:
                return _json(self.repos[name])
            case ["commits", *_] if not self.commits[name]:
                return error(409, "Git Repository is empty.")
            case ["commits"]:
                return self._page(
                    request, [self._commit(name, sha) for sha in self.commits[name]], request.path
                )
            case ["statuses", _] | ["issues", _, "comments"] if request.method == "POST":
                return Fault(201, b"{}") if login else error(403, "Resource not accessible by integration")
            case ["commits", sha, "pulls"]:
                found = [pull for pull in self.pulls.get(name, []) if sha in pull["commits"]]
                shown = [{key: value for key, value in pull.items() if key != "commits"} for pull in found]
                return self._page(request, shown, request.path)
            case ["pulls", number, "commits"]:
                (pull,) = [pull for pull in self.pulls[name] if str(pull["number"]) == number]
                return self._page(request, [self._commit(name, sha) for sha in pull["commits"]], request.path)
            case ["issues" | "pulls", *_]:
                return self._texts(request, name, rest)
            case ["commits", sha]:
                known = [full for full in self.commits[name] if full.startswith(sha)]
                return (
                    _json(self._commit(name, known[0]))
                    if len(known) == 1
                    else error(422, f"No commit found for SHA: {sha}")
                )
        return error(404, "Not Found")

    def _commit(self, full_name: str, sha: str) -> Json:
        person = {"name": "Ada", "email": "ada@example.org", "date": stamp(0)}
        return {
            "sha": sha,
            "node_id": f"C_{sha}",
            "url": f"{self.base_url}/repos/{full_name}/commits/{sha}",
            "html_url": f"https://github.example/{full_name}/commit/{sha}",
            "commit": {"message": "change", "author": person, "committer": person},
            "parents": [],
            "files": [{"filename": "a.txt", "status": "added", "additions": 1, "patch": " -0,0 +1 \n+text"}],
        }

    def _page(self, request: web.BaseRequest, items: list[Json], path: str) -> Fault:
        """Return the requested page of a list, with a Link header to the other pages."""
        size = min(int(request.query.get("per_page", "30")), 100)
        page = int(request.query.get("page", "1"))
        last = max(-(-len(items) // size), 1)
        response = _json(items[(page - 1) * size : page * size])
        numbers = {"prev": page - 1, "next": page + 1, "last": last, "first": 1}
        existing = {
            rel: n
            for rel, n in numbers.items()
            if (n < page if rel in {"prev", "first"} else n > page) and 1 <= n <= last
        }
        links = {
            rel: f"{self.base_url}{path}?{urlencode({**request.query, 'page': n})}"
            for rel, n in existing.items()
        }
        if self.next_link:
            links["next"] = self.next_link
        if links:
            response.headers["Link"] = ", ".join(f'<{url}>; rel="{rel}"' for rel, url in links.items())
        return response


def stamp(day: int) -> str:
    """Return the time of a day after FIRST_DAY as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(FIRST_DAY + 86_400 * day))


def _json(value: Any) -> Fault:
    return Fault(200, json.dumps(value).encode())


def _content_type(response: Fault) -> dict[str, str]:
    return {"Content-Type": "application/json; charset=utf-8"} if response.body else {}


async def _send_cut(request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
    """Send a response with too large a Content-Length, and close the connection after its body."""
    headers = {"Content-Length": str(len(fault.body) + 100)}
    response = web.StreamResponse(status=fault.status, headers=headers)
    await response.prepare(request)
    await response.write(fault.body)
    assert request.transport is not None
    request.transport.close()
    return response


@contextmanager
def github_host(folder: Path | None = None, **settings: Any) -> Iterator[GitHubHost]:
    """Run a host with these settings; with a folder for the certificate it is `https://api.git.example`."""
    host = GitHubHost(**settings)
    context = None
    if folder is not None:
        tls_folder = folder / "github-tls"
        tls_folder.mkdir()
        host.ca, key = make_certificate(tls_folder, NAME)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(host.ca, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(host.answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        host.port = runner.addresses[0][1]
        return runner

    try:
        runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
        try:
            yield host
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def merge_egress(folder: Path, *parts: Egress) -> Egress:
    """Return network rules that reach all of these hosts and trust all of their certificates."""
    trusted = folder / "all.pem"
    trusted.write_bytes(b"".join(part.ca_file.read_bytes() for part in parts if part.ca_file))
    return Egress(parts[0].allow, tuple(pair for part in parts for pair in part.connect_to), trusted)
