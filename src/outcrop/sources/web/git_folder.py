"""Download a `.git` folder that a site serves by mistake, into a repository of our own.

1. `read_head` checks that there is a git folder.
2. `find_start_ids` collects object ids from refs, reflogs and the index.
3. `fetch_packs` downloads the packs that the folder lists.
4. `fetch_loose_objects` downloads objects one by one, following their references.

The folder is not trusted. Its configuration is not read. Our git indexes the packs again, and so computes the
id of each object from its content. A loose object is written only if its content has the requested id.
"""

import asyncio
import contextlib
import hashlib
import os
import signal
import subprocess
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.lazy_regex import regex
from outcrop.limits import (
    GIT_FOLDER_LIMITS,
    GIT_FOLDER_METADATA_BYTES,
    GIT_FOLDER_REQUEST_SECONDS,
    GIT_FOLDER_WANTED_IDS,
    GitFolderLimits,
)
from outcrop.net.http import HttpClient, HttpError
from outcrop.sources.git import command
from outcrop.sources.git.repository import Repository, open_mirror
from outcrop.sources.web.git_objects import find_ids, index_ids, inflate_object, packed_ids, referenced_ids
from outcrop.sources.web.leak_paths import is_git_head

_COMMON_REFS = (
    "heads/main", "heads/master", "heads/develop", "heads/dev", "heads/staging", "heads/production",
    "heads/prod", "heads/release", "remotes/origin/HEAD", "remotes/origin/main", "remotes/origin/master",
    "remotes/origin/develop", "stash",
)  # fmt: skip
_REF_NAME = regex(rb"refs/(?!.*(?:\.\.|//|@\{|\.lock(?:/|$)))[\w./+@=-]{1,200}(?<![./])")
_REFLOG_CHECKOUT = regex(rb"checkout: moving from (\S{1,200}) to (\S{1,200})")
_PACK_NAME = regex(rb"\bpack-[0-9a-f]{40}\.pack\b")
_MAX_HEAD_BYTES = 1 << 12
_OBJECT_BATCH = 256  # loose objects that are requested before new references are considered


async def fetch_repository(
    http: HttpClient,
    head_url: str,
    work: Path,
    *,
    headers: Mapping[str, str] | None = None,
    limits: GitFolderLimits = GIT_FOLDER_LIMITS,
) -> Repository | None:
    """Download the git folder whose HEAD file is at `head_url` into the folder `work`, and open it.

    `headers` are sent with each request. Return None if there is no git folder. When the time of `limits` is
    over, return what was fetched. The `gaps` of the repository name what cannot be fetched, or was not
    fetched because of `limits`.
    """
    download = _GitFolderDownload(
        http, head_url.removesuffix("HEAD"), work / "site.git", headers or {}, limits
    )
    try:
        async with asyncio.timeout(download.limits.seconds):
            if not await download.read_head():
                return None
            await download.find_start_ids()
            await download.fetch_packs()
            await download.fetch_loose_objects()
    except TimeoutError:
        download.create_repository()  # the time may have been over before HEAD was read
        download.add_gap(f"time limit of {download.limits.seconds:g} seconds: not all objects were fetched")
    return download.open_repository()


@dataclass(slots=True)
class _GitFolderDownload:
    """The state of one download. `base` is the URL of the git folder, `folder` our repository."""

    http: HttpClient
    base: str
    folder: Path
    headers: Mapping[str, str]
    limits: GitFolderLimits
    gaps: list[str] = field(default_factory=list)
    head: bytes = b""  # the content of HEAD
    refs: dict[bytes, bytes] = field(default_factory=dict)  # name -> object id
    wanted: set[bytes] = field(default_factory=set)  # ids that something refers to
    stored: set[bytes] = field(default_factory=set)  # ids of objects in our repository
    missing: int = 0  # objects that the site does not serve
    fetched_bytes: int = 0

    def add_gap(self, reason: str) -> None:
        """Add a gap, unless the same text was added before."""
        if reason not in self.gaps:
            self.gaps.append(reason)

    async def read_head(self) -> bool:
        """Read HEAD into `head` and create our repository; return False if the site serves no valid HEAD."""
        self.head = (await self._get("HEAD", _MAX_HEAD_BYTES) or b"").strip()
        if not is_git_head(self.head):
            return False
        self.create_repository()
        return True

    def create_repository(self) -> None:
        """Create an empty repository in `folder`; if it exists, replace only HEAD and the configuration."""
        for name in ("objects/pack", "objects/info", "refs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "HEAD").write_text("ref: refs/heads/none\n")
        (self.folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")

    # --- Ids from refs, reflogs and the index

    async def find_start_ids(self) -> None:
        """Fetch refs, reflogs and the index; record the refs, and add all ids in these files to `wanted`.

        If the folder is a shallow clone, write its file `shallow` to our repository and add a gap.
        """
        names = ("packed-refs", "info/refs", "logs/HEAD", "index")
        packed_refs, info_refs, reflog, index = await asyncio.gather(*map(self._get_or_empty, names))
        for line in packed_refs.splitlines():
            self._add_ref(line[41:], line[:40])
        for line in info_refs.splitlines():
            oid, _, name = line.partition(b"\t")
            self._add_ref(name, oid)
        await self._for_each(self._guess_ref_names(reflog), self._read_ref)
        self.wanted |= {*self.refs.values(), *find_ids(self.head), *find_ids(reflog), *index_ids(index)}
        for file in ("ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "logs/refs/stash"):
            self.wanted |= find_ids(await self._get_or_empty(file))
        if shallow := find_ids(await self._get_or_empty("shallow")):
            (self.folder / "shallow").write_bytes(b"".join(oid + b"\n" for oid in sorted(shallow)))
            self.add_gap("the clone is shallow: older history is missing")

    def _guess_ref_names(self, reflog: bytes) -> list[bytes]:
        """Return ref names to try: common ones, that of HEAD, and branches whose checkout is in `reflog`."""
        names = {f"refs/{name}".encode() for name in _COMMON_REFS} | {self.head.removeprefix(b"ref:").strip()}
        for checkout in _REFLOG_CHECKOUT.finditer(reflog):
            names |= {b"refs/heads/" + branch for branch in checkout.groups()}
        return sorted(name for name in names if _REF_NAME.fullmatch(name))

    async def _read_ref(self, name: bytes) -> None:
        """Fetch the file of the ref `name`, and record the ref if the name is valid and the file is an id."""
        self._add_ref(name, (await self._get_or_empty(name.decode())).strip())

    def _add_ref(self, name: bytes, oid: bytes) -> None:
        """Record a ref in `refs` if its name and its id are valid; ignore it otherwise."""
        if _REF_NAME.fullmatch(name) and find_ids(oid) == {oid}:
            self.refs[name] = oid

    # --- Packs

    async def fetch_packs(self) -> None:
        """Fetch and index the packs that `objects/info/packs` lists; add a gap if one fails.

        `stored` becomes the set of the ids of their objects, and the ids that these refer to are added to
        `wanted`.
        """
        listing = await self._get_or_empty("objects/info/packs")
        names = {match[0].decode() for match in _PACK_NAME.finditer(listing)}
        for name in sorted(names):
            raw = await self._get(f"objects/pack/{name}", self.limits.file_bytes)
            if raw is None:
                self.add_gap("a pack that the folder lists is not served")
            elif not await asyncio.to_thread(self._store_pack, name, raw):
                self.add_gap("a pack is damaged: its objects cannot be read")
        if names:
            self.stored, referenced = await asyncio.to_thread(packed_ids, self.folder)
            self.wanted |= referenced

    def _store_pack(self, name: str, raw: bytes) -> bool:
        """Write the pack `raw` to the file `name` and index it; return False if git cannot index it.

        In that case the file is removed again. git is killed after `limits.seconds`.
        """
        path = self.folder / "objects" / "pack" / name
        path.write_bytes(raw)
        with command.start(self.folder, ["index-pack", str(path)]) as process:
            try:
                process.communicate(timeout=self.limits.seconds)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
        if process.returncode == 0 and path.with_suffix(".idx").is_file():
            return True
        for file in path.parent.glob(f"{path.stem}.*"):
            file.unlink()
        return False

    # --- Loose objects

    async def fetch_loose_objects(self) -> None:
        """Fetch wanted objects one by one, then the objects that they refer to, up to `limits.objects`.

        Objects that cannot be fetched are counted in `missing`. Add a gap if the limit is reached.
        """
        requested: set[bytes] = set()
        while pending := sorted(self.wanted - self.stored - requested):
            remaining = self.limits.objects - len(requested)
            if remaining <= 0:
                self.add_gap(f"more than {self.limits.objects} objects: the rest was not fetched")
                return
            batch = pending[: min(remaining, _OBJECT_BATCH)]
            requested.update(batch)
            await self._for_each(batch, self._fetch_object)
            self.missing += len(set(batch) - self.stored)

    async def _fetch_object(self, oid: bytes) -> None:
        """Fetch and store the object with this hexadecimal id, if the site serves it."""
        if raw := await self._get(f"objects/{oid[:2].decode()}/{oid[2:].decode()}", self.limits.file_bytes):
            await asyncio.to_thread(self._store_object, oid, raw)

    def _store_object(self, oid: bytes, raw: bytes) -> None:
        """Write the compressed object `raw` to our repository, and add its id to `stored`.

        The ids that it refers to are added to `wanted`, up to about GIT_FOLDER_WANTED_IDS. Ignore an object
        whose content does not have the id `oid`, or is larger than `limits.file_bytes`.
        """
        data = inflate_object(raw, self.limits.file_bytes)
        if data is None or hashlib.sha1(data, usedforsecurity=False).hexdigest().encode() != oid:
            return
        path = self.folder / "objects" / oid[:2].decode() / oid[2:].decode()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(data, 1))
        self.stored.add(oid)
        if len(self.wanted) < GIT_FOLDER_WANTED_IDS:
            self.wanted |= referenced_ids(data)

    # --- Requests

    async def _for_each(self, names: Iterable[bytes], work: Callable[[bytes], Awaitable[None]]) -> None:
        """Run `work` for each name, at most `limits.concurrency` at a time, and wait for all."""
        semaphore = asyncio.Semaphore(self.limits.concurrency)

        async def run_limited(name: bytes) -> None:
            """Run `work` for a name when the semaphore is free."""
            async with semaphore:
                await work(name)

        await asyncio.gather(*map(run_limited, names))

    async def _get(self, name: str, max_bytes: int = GIT_FOLDER_METADATA_BYTES) -> bytes | None:
        """Return the file `name` of the git folder; None if it is not served or larger than `max_bytes`.

        Also None if the request fails or the download has reached `limits.total_bytes`. Add a gap unless the
        site merely answers with a failure status. The size is added to `fetched_bytes`.
        """
        remaining = self.limits.total_bytes - self.fetched_bytes
        if remaining <= 0:
            self.add_gap(f"more than {self.limits.total_bytes} bytes: the rest was not fetched")
            return None
        try:
            response = await self.http.get(
                f"{self.base}{name}",
                headers=self.headers,
                max_bytes=min(max_bytes, remaining),
                seconds=GIT_FOLDER_REQUEST_SECONDS,
            )
        except HttpError as error:
            self.add_gap(f"some files cannot be fetched: {error}")
            return None
        self.fetched_bytes += len(response.body)
        if response.truncated:
            self.add_gap("a file is too large to be fetched")
        return response.body if response.ok and not response.truncated else None

    async def _get_or_empty(self, name: str) -> bytes:
        """Return a small file of the git folder; b"" if `_get` returns None."""
        return await self._get(name) or b""

    def open_repository(self) -> Repository:
        """Write the refs whose objects are stored, and return the opened repository.

        HEAD is written too if it is an id or one of these refs. The repository gets the gaps of the download,
        and further ones for missing objects.
        """
        valid = {name: oid for name, oid in sorted(self.refs.items()) if oid in self.stored}
        (self.folder / "packed-refs").write_bytes(
            b"".join(oid + b" " + name + b"\n" for name, oid in valid.items())
        )
        if find_ids(self.head) == {self.head} or self.head.removeprefix(b"ref:").strip() in valid:
            (self.folder / "HEAD").write_bytes(self.head + b"\n")
        if not self.stored:
            self.add_gap("the git folder serves no readable object")
        if self.missing:
            self.add_gap(f"{self.missing} objects of the git folder are not served")
        repository = open_mirror(self.folder)
        repository.gaps.extend(self.gaps)
        return repository
