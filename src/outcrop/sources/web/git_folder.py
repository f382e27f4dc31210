"""A site's open `.git` folder, brought into a repository of our own.

Nothing of it is trusted: the folder's configuration is not read, packs are indexed anew by our git, which computes every
object's id from its content, and a loose object is written only when its content has the id that it was asked for by.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import subprocess
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outcrop.net.http import HttpClient, HttpError
from outcrop.sources.git import command
from outcrop.sources.git.repository import Repository, open_mirror
from outcrop.sources.web.git_objects import ids_in, index_ids, packed_ids, references, unpack
from outcrop.sources.web.leak_paths import is_git_head

_NAMES = (
    "heads/main", "heads/master", "heads/develop", "heads/dev", "heads/staging", "heads/production", "heads/prod", "heads/release",
    "remotes/origin/HEAD", "remotes/origin/main", "remotes/origin/master", "remotes/origin/develop", "stash",
)  # fmt: skip
_REF = re.compile(rb"refs/(?!.*(?:\.\.|//|@\{|\.lock(?:/|$)))[\w./+@=-]{1,200}(?<![./])")
_MOVED = re.compile(rb"checkout: moving from (\S{1,200}) to (\S{1,200})")
_PACK = re.compile(rb"\bpack-[0-9a-f]{40}\.pack\b")
_SMALL = 16 << 20
_BATCH = 256
_MOST_WANTED = 1_000_000


@dataclass(frozen=True, slots=True)
class GitFolderLimits:
    objects: int = 50_000  # that are fetched one by one
    size: int = 1 << 30  # of all that is fetched
    one: int = 128 << 20  # of one file, which is held in memory
    seconds: float = 1_800.0
    at_once: int = 4


async def fetch_repository(
    http: HttpClient,
    head_url: str,
    work: Path,
    *,
    headers: Mapping[str, str] | None = None,
    limits: GitFolderLimits | None = None,
) -> Repository | None:
    """Bring what an open git folder serves, given the address of its HEAD; None where there is no such folder. What is missing is a gap."""
    fetching = _Fetching(
        http, head_url.removesuffix("HEAD"), work / "site.git", headers or {}, limits or GitFolderLimits()
    )
    try:
        async with asyncio.timeout(fetching.limits.seconds):
            if not await fetching.begin():
                return None
            await fetching.refs()
            await fetching.packs()
            await fetching.loose()
    except TimeoutError:
        fetching.make()  # where time was over before HEAD had come
        fetching.gap(f"{fetching.limits.seconds:g} seconds are over: not all objects were fetched")
    return fetching.finish()


@dataclass(slots=True)
class _Fetching:
    http: HttpClient
    base: str
    folder: Path
    headers: Mapping[str, str]
    limits: GitFolderLimits
    gaps: list[str] = field(default_factory=list)
    named: dict[bytes, bytes] = field(default_factory=dict)  # ref → id
    wanted: set[bytes] = field(default_factory=set)
    had: set[bytes] = field(default_factory=set)
    missing: int = 0
    fetched: int = 0
    head: bytes = b""

    def gap(self, why: str) -> None:
        if why not in self.gaps:
            self.gaps.append(why)

    async def begin(self) -> bool:
        """Read HEAD, and make the repository when there is one."""
        self.head = (await self._get("HEAD", 1 << 12) or b"").strip()
        if not is_git_head(self.head):
            return False
        self.make()
        return True

    def make(self) -> None:
        """Lay out a repository without anything in it."""
        for name in ("objects/pack", "objects/info", "refs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "HEAD").write_text("ref: refs/heads/none\n")
        (self.folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")

    async def refs(self) -> None:
        """Learn where history begins: from refs under every name that we can know, from the reflog, and from the index."""
        packed, listed, log, index = await asyncio.gather(
            self._get("packed-refs"), self._get("info/refs"), self._get("logs/HEAD"), self._get("index")
        )
        for line in (packed or b"").splitlines():
            self._name(line[41:], line[:40])
        for line in (listed or b"").splitlines():
            oid, _, name = line.partition(b"\t")
            self._name(name, oid)
        names = {f"refs/{name}".encode() for name in _NAMES} | {self.head.removeprefix(b"ref:").strip()}
        names |= {b"refs/heads/" + name for moved in _MOVED.finditer(log or b"") for name in moved.groups()}
        await self._each(sorted(name for name in names if _REF.fullmatch(name)), self._read_ref)
        self.wanted |= {
            *self.named.values(),
            *ids_in(self.head),
            *ids_in(log or b""),
            *index_ids(index or b""),
        }
        for file in ("ORIG_HEAD", "FETCH_HEAD", "MERGE_HEAD", "logs/refs/stash"):
            self.wanted |= ids_in(await self._get(file) or b"")
        if shallow := ids_in(await self._get("shallow") or b""):
            (self.folder / "shallow").write_bytes(b"".join(oid + b"\n" for oid in sorted(shallow)))
            self.gap("the clone is shallow: older history is not there")

    def _name(self, name: bytes, oid: bytes) -> None:
        if _REF.fullmatch(name) and ids_in(oid) == {oid}:
            self.named[name] = oid

    async def packs(self) -> None:
        """Fetch the packs that the folder lists, and learn what is in them and what they refer to."""
        names = {match[0].decode() for match in _PACK.finditer(await self._get("objects/info/packs") or b"")}
        for name in sorted(names):
            raw = await self._get(f"objects/pack/{name}", self.limits.one)
            if raw is None:
                self.gap("a pack that the folder lists is not served")
            elif not await asyncio.to_thread(self._store_pack, name, raw):
                self.gap("a pack is damaged: its objects cannot be read")
        if names:
            self.had, referred = await asyncio.to_thread(packed_ids, self.folder)
            self.wanted |= referred

    def _store_pack(self, name: str, raw: bytes) -> bool:
        path = self.folder / "objects" / "pack" / name
        path.write_bytes(raw)
        # Whoever reads the repository later is given no pack that cannot be read.
        with command.start(self.folder, ["index-pack", str(path)], memory=4 << 30) as process:
            try:
                process.communicate(timeout=self.limits.seconds)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
        if process.returncode == 0 and path.with_suffix(".idx").is_file():
            return True
        for left in path.parent.glob(f"{path.stem}.*"):
            left.unlink()
        return False

    async def loose(self) -> None:
        """Fetch objects one by one, each generation of references after the other."""
        tried: set[bytes] = set()
        while ahead := sorted(self.wanted - self.had - tried):
            room = self.limits.objects - len(tried)
            if room <= 0:
                self.gap(f"more than {self.limits.objects} objects: the rest was not fetched")
                return
            batch = ahead[: min(room, _BATCH)]
            tried.update(batch)
            await self._each(batch, self._fetch_object)
            self.missing += len(set(batch) - self.had)

    async def _read_ref(self, name: bytes) -> None:
        self._name(name, (await self._get(name.decode()) or b"").strip())

    async def _fetch_object(self, oid: bytes) -> None:
        if raw := await self._get(f"objects/{oid[:2].decode()}/{oid[2:].decode()}", self.limits.one):
            await asyncio.to_thread(self._store, oid, raw)

    def _store(self, oid: bytes, raw: bytes) -> None:
        """Write an object whose content has the id that it was asked for by."""
        found = unpack(raw, self.limits.one)
        if found is None or hashlib.sha1(found, usedforsecurity=False).hexdigest().encode() != oid:
            return
        path = self.folder / "objects" / oid[:2].decode() / oid[2:].decode()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(found, 1))
        self.had.add(oid)
        if len(self.wanted) < _MOST_WANTED:
            self.wanted |= references(found)

    async def _each(self, names: Iterable[bytes], work: Callable[[bytes], Awaitable[None]]) -> None:
        """Do something for each name, some at a time."""
        gate = asyncio.Semaphore(self.limits.at_once)

        async def one(name: bytes) -> None:
            async with gate:
                await work(name)

        await asyncio.gather(*map(one, names))

    async def _get(self, name: str, most: int = _SMALL) -> bytes | None:
        left = self.limits.size - self.fetched
        if left <= 0:
            self.gap(f"more than {self.limits.size} bytes: the rest was not fetched")
            return None
        try:
            answer = await self.http.get(
                f"{self.base}{name}", headers=self.headers, max_bytes=min(most, left), seconds=120.0
            )
        except HttpError as error:
            self.gap(f"some files cannot be fetched: {error}")
            return None
        self.fetched += len(answer.body)
        if answer.truncated:
            self.gap("a file is too large to be fetched")
        return answer.body if answer.ok and not answer.truncated else None

    def finish(self) -> Repository:
        """Write the refs whose objects are there, and open the repository."""
        known = {name: oid for name, oid in sorted(self.named.items()) if oid in self.had}
        (self.folder / "packed-refs").write_bytes(
            b"".join(oid + b" " + name + b"\n" for name, oid in known.items())
        )
        if ids_in(self.head) == {self.head} or self.head.removeprefix(b"ref:").strip() in known:
            (self.folder / "HEAD").write_bytes(self.head + b"\n")
        if not self.had:
            self.gap("the git folder serves no object that can be read")
        if self.missing:
            self.gap(f"{self.missing} objects of the git folder are not served")
        repository = open_mirror(self.folder)
        repository.gaps.extend(self.gaps)
        return repository
