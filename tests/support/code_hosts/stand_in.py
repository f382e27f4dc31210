"""What the stand-ins of code hosts share: repositories, tokens, faults, and git over https."""

import base64
import json
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import UUID, uuid5

from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https
from tests.support.git_host import ENV

_NAMESPACE = UUID(int=7)


@dataclass
class Repository:
    """A repository of a stand-in."""

    id: int
    owner: str  # GROUP/SUBGROUP, WORKSPACE, PROJECT or ORG/PROJECT
    name: str
    private: bool = False
    fork: bool = False
    archived: bool = False
    wiki: bool = False
    commits: list[str] = field(default_factory=lambda: ["a" * 40])
    features: dict[str, bool] = field(default_factory=dict)  # of GitLab: those that are not on
    access_level: int | None = 40  # of the token, on GitLab

    @property
    def path(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def uuid(self) -> str:
        return guid(f"repository {self.id}")


def guid(text: str) -> str:
    """Return a made-up UUID, the same for the same text."""
    return str(uuid5(_NAMESPACE, text))


@dataclass
class StandIn:
    """The state of a stand-in. Tests may change all fields while it runs."""

    answer: "Callable[[StandIn, ReceivedRequest], FakeResponse]"
    hosts: tuple[str, ...]
    repositories: list[Repository] = field(default_factory=list)
    # The headers (name, value) of a token that sees everything, and those of one git login.
    accepted: set[tuple[str, str]] = field(default_factory=set)
    credentials: tuple[str, ...] = ("Authorization", "PRIVATE-TOKEN")
    page_size: int = 100
    faults: deque[tuple[str, FakeResponse]] = field(default_factory=deque)  # (part of the path, response)
    always: dict[str, FakeResponse] = field(default_factory=dict)  # by part of the path
    expires_after: int | None = None  # requests after which the token is refused
    served: Path | None = None  # folder of the bare repositories
    texts: dict[str, list[Any]] = field(default_factory=dict)  # discussions, by the path that lists them
    snippets: list[dict[str, object]] = field(default_factory=list)  # of a workspace on Bitbucket
    # Texts whose own path is not that of their list, by its beginning.
    singles: dict[str, list[Any]] = field(default_factory=dict)
    requests: list[ReceivedRequest] = field(default_factory=list)
    server: FakeServer | None = None

    def add(self, path: str, **fields: Any) -> Repository:
        """Add a repository OWNER/NAME."""
        owner, _, name = path.rpartition("/")
        repository = Repository(100 + len(self.repositories), owner, name, **fields)
        self.repositories.append(repository)
        return repository

    def find_text(self, path: str) -> Any:
        """Return the text at the path that follows from its list: `…/issues/1`; None if there is none."""
        listing, _, number = path.rpartition("/")
        for text in self.singles.get(listing, self.texts.get(listing, [])):
            if number in {str(text.get(name)) for name in ("iid", "id", "pullRequestId")}:
                return text
        return None

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def is_trusted(self, request: ReceivedRequest) -> bool:
        return any(request.headers.get(name) == value for name, value in self.accepted)

    def visible(self, request: ReceivedRequest) -> list[Repository]:
        """Return the repositories that the sender of a request may see."""
        return [repo for repo in self.repositories if not repo.private or self.is_trusted(request)]

    def respond(self, request: ReceivedRequest) -> FakeResponse:
        """Return the next fault for the path, git's response, or that of the API."""
        request = replace(request, path=request.raw_path)
        self.requests.append(request)
        if ".git/" in request.path or "/_git/" in request.path:
            return self._git(request)
        for fault in list(self.faults):
            if fault[0] in f"{request.path}?{request.query}":
                self.faults.remove(fault)
                return fault[1]
        for part, response in self.always.items():
            if part in f"{request.path}?{request.query}":
                return response
        sent = any(name in request.headers for name in self.credentials)
        if sent and self.expires_after is not None:
            self.expires_after -= 1
        if sent and (not self.is_trusted(request) or (self.expires_after or 0) < 0):
            return answer_json({"message": "401 Unauthorized"}, 401)
        return self.answer(self, request)

    def _has_git_login(self, request: ReceivedRequest) -> bool:
        """Whether git sends the accepted token as its password."""
        password = base64_password(request.headers.get("Authorization", ""))
        known = {
            part for _, value in self.accepted for part in (value.split(" ")[-1], base64_password(value))
        }
        return password != "" and password in known

    def _git(self, request: ReceivedRequest) -> FakeResponse:
        """Run git's own server for a request, after checking the login of a private repository."""
        assert self.served is not None
        path = unquote(request.path)
        parts = set(path.replace(".git", "").split("/"))
        named = (repo for repo in self.repositories if repo.name in parts)
        found = next((repo for repo in named if (self.served / f"{repo.path}.git").exists()), None)
        if found is None or (found.private and not self._has_git_login(request)):
            return FakeResponse(401, {"WWW-Authenticate": "Basic"})
        service = "/info/refs" if path.endswith("/info/refs") else "/git-upload-pack"
        environment = ENV | {
            "GIT_PROJECT_ROOT": str(self.served),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": f"/{found.path}.git{service}",
            "QUERY_STRING": request.query,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        }
        ran = subprocess.run(
            ["git", "http-backend"], env=environment, input=request.body, capture_output=True, check=True
        )
        head, _, body = ran.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        return FakeResponse(status, headers, body)


def answer_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> FakeResponse:
    """Return a JSON response."""
    own = {"Content-Type": "application/json"} | dict(headers or {})
    return FakeResponse(status, own, json.dumps(value).encode())


def base64_password(value: str) -> str:
    """Return the password of a basic Authorization header; "" for another one."""
    scheme, _, encoded = value.partition(" ")
    return base64.b64decode(encoded).decode().partition(":")[2] if scheme == "Basic" else ""


def query_of(request: ReceivedRequest) -> dict[str, str]:
    """Return the parameters of a request's query."""
    return dict(parse_qsl(request.query))


def not_found(message: str = "404 Not Found") -> FakeResponse:
    """Return a response with status 404."""
    return answer_json({"message": message}, 404)


@contextmanager
def run_stand_in(stand_in: StandIn, folder: Path) -> Iterator[StandIn]:
    """Run a stand-in; `stand_in.server.egress` leads its public names to it."""
    folder.mkdir(exist_ok=True)
    with serve_https(folder, stand_in.hosts, stand_in.respond) as server:
        stand_in.server = server
        yield stand_in
