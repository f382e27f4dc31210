"""A web site: what it serves is read as it comes; what it no longer serves is asked for once more, and then resolved."""

import asyncio
from http import HTTPStatus
from time import monotonic

from outcrop.domain.finding import Confidence, SourceType, Status
from outcrop.domain.scan import Gap
from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.scanner.content import scan_content
from outcrop.services.pipeline.consist import Found
from outcrop.services.pipeline.record import Sighting, record, resolve_gone
from outcrop.services.pipeline.tools import Look, Part, Tools, now
from outcrop.sources.base import for_path, shown
from outcrop.sources.errand import Errand
from outcrop.sources.web import Resource, Site, crawl, look_again
from outcrop.sources.web_git import fetch_repository
from outcrop.sources.workspace import work_folder
from outcrop.store import scans, sources
from outcrop.store.sources import Standing

_OPEN = {Status.ACTIVE, Status.STALE}
_RECORD_AT = 200  # sightings that wait to be recorded
_TELL_EVERY = 2.0
_GIT_HEAD = "/.git/HEAD"
_BEHIND = b"/.git!"  # what an open git folder holds stands behind this


async def look_at_site(tools: Tools, part: Part, found: Found, token: Secret | None, look: Look) -> None:
    """Crawl a site, record what it serves, and judge what it served before."""
    headers = {} if token is None else {"Authorization": reveal(token)}
    site = _site(found, headers)
    waiting: list[Sighting] = []
    origins = {part.source}
    pages = size = 0
    last = monotonic()
    async for resource in crawl(tools.http, site, lambda what, why: look.gaps.append(Gap(what, why))):
        origins.add(resource.origin)
        pages += 1
        size += len(resource.body)
        waiting += await asyncio.to_thread(_sightings, tools, resource, found)
        if resource.path.endswith(_GIT_HEAD):
            waiting += await _behind(tools, resource, found, headers, look)
        look.progress = {"pages": pages, "bytes": size}
        if len(waiting) >= _RECORD_AT:
            await record(tools, part, waiting)
            waiting = []
        if monotonic() - last > _TELL_EVERY:
            last = monotonic()
            async with tools.pool.connection() as db:
                await scans.set_progress(db, part.account_id, part.scan_id, part.source, look.progress)
    await record(tools, part, waiting)
    for origin in sorted(origins):
        await _judge(tools, part, origin, headers if origin == part.source else {})


def _site(found: Found, headers: dict[str, str]) -> Site:
    options = found.options
    return Site(
        found.url,
        depth=int(options.get("depth", 3)),
        most_pages=int(options.get("pages", 500)),
        leak_places=bool(options.get("leak_places")),
        robots=bool(options.get("robots", True)),
        include=found.include,
        exclude=found.exclude,
        headers=headers,
    )


def _sightings(tools: Tools, resource: Resource, found: Found) -> list[Sighting]:
    path = resource.path.encode("utf-8", "surrogateescape")
    held = scan_content(tools.ruleset, resource.body, Confidence.MEDIUM)
    return [
        Sighting(
            hit=hit,
            path=path + (b"!" + inner.encode("utf-8", "surrogateescape") if inner else b""),
            source_type=resource.source_type,
            visibility=found.visibility,
            source_url=resource.url,
            repo_full_name=None,
            file_path=resource.file_path + (f"!{inner}" if inner else ""),
            line=hit.line,
            current_line=hit.line,
            source=resource.origin,
            media_type=resource.media_type,
        )
        for inner, hit in for_path(held, path)
    ]


async def _behind(tools: Tools, resource: Resource, found: Found, headers: dict[str, str], look: Look) -> list[Sighting]:
    """Look through an open git folder."""
    with work_folder(tools.work) as folder:
        repository = await fetch_repository(tools.http, resource.url, folder, headers=headers)
        if repository is None:
            return []
        brought = await tools.crew.run(Errand(folder=repository.folder, jobs=tools.jobs), lambda *_: None)
    look.gaps += [Gap(f"{resource.url}: {where}", why) for where, why in [*brought.gaps, *(("", gap) for gap in repository.gaps)]]
    return [
        Sighting(
            hit=one.hit,
            path=_BEHIND + one.path,
            source_type=SourceType.ENDPOINT,
            visibility=found.visibility,
            source_url=resource.url,
            repo_full_name=None,
            file_path=f"/.git!{shown(one.path)}",
            line=one.hit.line,
            current_line=one.current_line,
            commit=one.origin.commit if one.origin else None,
            source=resource.origin,
            media_type=resource.media_type,
        )
        for one in brought.located
        if one.path is not None
    ]


async def _judge(tools: Tools, part: Part, origin: str, headers: dict[str, str]) -> None:
    """Ask once more for the address of each finding that this run has not met."""
    async with tools.pool.connection() as db:
        standing = await sources.findings_in(db, part.account_id, origin)
    for one in standing:
        if one.last_scan_id == part.scan_id or one.finding.status not in _OPEN or one.box is None or one.finding.source_url is None:
            continue
        value = reveal(tools.keys.open(one.box, part.account_id, one.finding.id, wholly=True))
        verdict = await _is_there(tools, one, value, headers)
        if verdict is False:
            await resolve_gone(tools, part, [one.finding.id])
        elif verdict:
            async with tools.pool.connection() as db, db.transaction():
                met = await sources.touch(db, part.account_id, [one.finding.id], scan_id=part.scan_id, now=now())
                await scans.count(db, part.account_id, part.scan_id, part.source, seen=met)


async def _is_there(tools: Tools, one: Standing, value: str, headers: dict[str, str]) -> bool | None:
    """Tell whether the address still serves the value; None where its answer says nothing about it."""
    url = one.finding.source_url or ""
    if MASK in url:
        return None  # the address held the credential and is not kept
    look = await look_again(tools.http, url, headers)
    if look.failed or look.challenge:
        return None
    if look.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return False
    if look.status != HTTPStatus.OK or look.media_type != one.media_type or _BEHIND in one.path:
        return None
    return await asyncio.to_thread(_holds, tools, look.body, value)


def _holds(tools: Tools, body: bytes, value: str) -> bool:
    if value.encode("utf-8", "surrogateescape") in body:
        return True
    return any(reveal(hit.secret) == value for _, hit in scan_content(tools.ruleset, body, Confidence.LOW).hits)
