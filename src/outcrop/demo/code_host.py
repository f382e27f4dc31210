"""A stand-in for a code host: the part of GitHub's REST API that a run needs, and git over HTTP."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from outcrop.demo.history import ENVIRONMENT, last_pushed
from outcrop.demo.repositories import GIST, OWNER, REPOSITORIES, DemoRepository

HOST = "code.acme.example"
API_URL = f"https://{HOST}/api/v3"
_API = "/api/v3"


class ExampleCodeHost:
    """Serve the repositories of a folder: `OWNER/NAME.git` and `gist/ID.git`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folder_of(self, repository: DemoRepository) -> Path:
        """Return the folder of a repository or of the gist."""
        return self._folder / ("gist" if repository.name == GIST else OWNER) / f"{repository.name}.git"

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request to the REST API or to git."""
        if not request.path.startswith(_API):
            return await self._git(request)
        found = await asyncio.to_thread(self._api, request.path.removeprefix(_API))
        status, body = (200, found) if found is not None else (404, {"message": "Not Found"})
        return web.Response(status=status, text=json.dumps(body), content_type="application/json")

    def _api(self, path: str) -> Any:
        """Return the JSON value of a path of the REST API; None if there is none."""
        match path.strip("/").split("/"):
            case ["users", login] if login == OWNER:
                return {"login": OWNER, "id": 1, "type": "Organization"}
            case ["orgs", login, "repos"] if login == OWNER:
                return [self._repository(number) for number in range(len(REPOSITORIES))]
            case ["repos", login, name] if login == OWNER:
                return next(
                    (
                        self._repository(number)
                        for number, repository in enumerate(REPOSITORIES)
                        if repository.name == name
                    ),
                    None,
                )
            case ["gists", id_] if id_ == GIST:
                pushed = last_pushed(self._folder / "gist" / f"{GIST}.git")
                owner = {"login": "jo", "id": 2, "type": "User"}
                addresses = {
                    "html_url": f"https://{HOST}/gist/{GIST}",
                    "git_pull_url": f"https://{HOST}/gist/{GIST}.git",
                }
                return {"id": GIST, "public": True, "owner": owner, "updated_at": pushed} | addresses
        return None

    def _repository(self, number: int) -> dict[str, Any]:
        """Return a repository as the REST API describes it."""
        repository = REPOSITORIES[number]
        return {
            "id": 1001 + number,
            "full_name": f"{OWNER}/{repository.name}",
            "clone_url": f"https://{HOST}/{OWNER}/{repository.name}.git",
            "html_url": f"https://{HOST}/{OWNER}/{repository.name}",
            "private": repository.visibility != "public",
            "visibility": repository.visibility,
            "fork": False,
            "archived": False,
            "has_wiki": False,
            "size": 12,
            "pushed_at": last_pushed(self.folder_of(repository)),
            "default_branch": "main",
        }

    async def _git(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a git request with `git http-backend`, which is a CGI program."""
        body = await request.read()
        environment = ENVIRONMENT | {
            "GIT_PROJECT_ROOT": str(self._folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "REQUEST_METHOD": request.method,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *("git", "http-backend"),
            env=environment,
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            out, _ = await process.communicate(body)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        head, _, content = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(fields.pop("Status", "200").split()[0])
        return web.Response(status=status, headers=fields, body=content)
