"""A web site: what it serves is read as it comes; what it no longer serves is asked for once more, and then resolved."""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from http import HTTPStatus
from time import monotonic
from urllib.parse import unquote, urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence, SourceType, Status, Visibility
from outcrop.domain.place import identity
from outcrop.domain.scan import Gap
from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.scanner.engine.excerpt import excerpts_of_file
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.services.pipeline.context import RunContext, SourceKey, SourceReport, now
from outcrop.services.pipeline.masking import SecretMasker
from outcrop.services.pipeline.record import DetectedSecret, opened_path, record, resolve_gone
from outcrop.sources.isolated.repository_job import RepositoryJob
from outcrop.sources.located import hits_at_path, printable_path
from outcrop.sources.resolve_target import ScanSource
from outcrop.sources.web.crawl import CrawlOptions, RefetchResult, Resource, crawl, refetch, refetch_client
from outcrop.sources.web.git_folder import fetch_repository
from outcrop.sources.workspace import work_folder
from outcrop.store.runs import scans, sources
from outcrop.store.runs.sources import StoredFinding

_OPEN = {Status.ACTIVE, Status.STALE}
_RECORD_AT = 200  # sightings that wait to be recorded
_TELL_EVERY = 2.0
_GIT_HEAD = "/.git/HEAD"
_BEHIND = "/.git!"  # what an open git folder holds stands behind this


async def scan_site(
    tools: RunContext, key: SourceKey, found: ScanSource, token: Secret | None, look: SourceReport
) -> None:
    """Crawl a site, record what it serves, and judge what it served before."""
    headers = {} if token is None else {"Authorization": reveal(token)}
    site = CrawlOptions.from_target(found.url, found.options, found.include, found.exclude, headers)
    waiting: list[DetectedSecret] = []
    met: set[bytes] = set()
    origins = {key.source}
    pages = size = 0
    last = monotonic()

    def tell(what: str, why: str) -> None:
        look.gaps.append(Gap(_veiled(tools.ruleset, what), why))

    # An iterator that is not closed goes on asking after a run was cancelled.
    async with aclosing(crawl(tools.http, site, tell)) as resources:
        async for resource in resources:
            origins.add(resource.origin)
            pages += 1
            size += len(resource.body)
            # What proves who we are went to the site's own origin only: what others serve is open to everybody.
            visibility = found.visibility if resource.origin == key.source else Visibility.PUBLIC
            sightings, unread = await asyncio.to_thread(_sightings, tools.ruleset, resource, visibility)
            waiting += sightings
            for why in unread:
                tell(resource.url, why)
            if resource.source_type is SourceType.ENDPOINT and resource.file_path.endswith(_GIT_HEAD):
                waiting += await _behind(
                    tools, resource, visibility, headers if resource.origin == key.source else {}, look
                )
            look.progress = {"pages": pages, "bytes": size}
            if len(waiting) >= _RECORD_AT:
                met |= await record(tools, key, waiting)
                waiting = []
            if monotonic() - last > _TELL_EVERY:
                last = monotonic()
                async with tools.pool.connection() as db:
                    await scans.set_progress(db, key.account_id, key.scan_id, key.source, look.progress)
    met |= await record(tools, key, waiting)
    look.gaps += await _judge(tools, key, site, origins, met)
    if not pages and look.gaps:
        raise OperatorError(
            look.gaps.pop(0).why
        )  # the start's own: whoever catches it tells it with the site's name


def _sightings(
    ruleset: RuleSet, resource: Resource, visibility: Visibility
) -> tuple[list[DetectedSecret], list[str]]:
    """Give the credentials that a text holds, and what of it could not be read."""
    path = resource.path.encode("utf-8", "surrogateescape")
    held = scan_content(ruleset, resource.body, Confidence.MEDIUM)
    hits = hits_at_path(held, path)
    excerpts = excerpts_of_file(
        ruleset,
        resource.body,
        [(b"!" + inner.encode("utf-8", "surrogateescape"), hit) for inner, hit in hits],
    )
    secrets = [hit.secret for _, hit in hits]
    url = _veiled(ruleset, resource.url, secrets) if hits else ""
    names = {
        inner: _veiled(ruleset, resource.file_path + (f"!{inner}" if inner else ""), secrets)
        for inner, _ in hits
    }
    return [
        DetectedSecret(
            hit=hit,
            path=path + (b"!" + inner.encode("utf-8", "surrogateescape") if inner else b""),
            source_type=resource.source_type,
            visibility=visibility,
            source_url=url,
            repo_full_name=None,
            file_path=names[inner],
            line=hit.line,
            current_line=hit.line,
            source=resource.origin,
            media_type=resource.media_type,
            excerpt=excerpt,
        )
        for (inner, hit), excerpt in zip(hits, excerpts, strict=True)
    ], held.gaps


def _veiled(ruleset: RuleSet, text: str, secrets: Iterable[Secret] = ()) -> str:
    """Mask every credential in an address or a name: one that stands on another page too, or on none."""
    found = scan_content(ruleset, unquote(text).encode("utf-8", "surrogateescape"), Confidence.MEDIUM)
    return SecretMasker([*secrets, *(hit.secret for _, hit in found.hits)], [text])(text)


async def _behind(
    tools: RunContext, resource: Resource, visibility: Visibility, headers: dict[str, str], look: SourceReport
) -> list[DetectedSecret]:
    """SourceReport through an open git folder."""
    with work_folder(tools.work) as folder:
        repository = await fetch_repository(tools.http, resource.url, folder, headers=headers)
        if repository is None:
            return []
        look.gaps += [Gap(resource.url, why) for why in repository.gaps]
        try:
            brought = await tools.process_pool.run(
                RepositoryJob(folder=repository.folder, processes=tools.jobs), lambda *_: None
            )
        except OperatorError as error:  # nothing that a folder holds ends the look at the site
            look.gaps.append(Gap(resource.url, error.message))
            return []
    base = urlsplit(resource.url).path.removesuffix("/HEAD") + "!"
    look.gaps += [
        Gap(_veiled(tools.ruleset, f"{resource.url}: {where}" if where else resource.url), why)
        for where, why in brought.gaps
    ]
    return [
        DetectedSecret(
            hit=one.hit,
            path=base.encode() + one.path,
            source_type=SourceType.ENDPOINT,
            visibility=visibility,
            source_url=resource.url,
            repo_full_name=None,
            file_path=_veiled(tools.ruleset, base + printable_path(one.path)),
            line=one.hit.line,
            current_line=one.current_line,
            commit=one.origin.commit if one.origin else None,
            source=resource.origin,
            media_type=resource.media_type,
            excerpt=one.excerpt,
        )
        for one in brought.located
        if one.path is not None
    ]


async def _judge(
    tools: RunContext, key: SourceKey, site: CrawlOptions, origins: set[str], met: set[bytes]
) -> list[Gap]:
    """Ask once more for the address of each finding that this run has not met, as whoever it was seen by; give what was left out."""
    stranger, guest = (
        refetch_client(tools.http, site, authenticated=False),
        refetch_client(tools.http, site, authenticated=True),
    )
    end = monotonic() + site.seconds
    for origin in sorted(origins):
        for (url, is_public), group in (await _unmet(tools, key, origin, met)).items():
            if not is_public and not (site.headers and origin == key.source):
                continue  # it was seen with a credential that this run does not have
            if monotonic() > end:
                return [
                    Gap(origin, f"{site.seconds:g} seconds are over: not every finding was asked for again")
                ]
            again = await refetch(stranger if is_public else guest, url)
            for one in group:
                await _settle(tools, key, one, await _is_there(tools, key, one, again))
    return []


async def _unmet(
    tools: RunContext, key: SourceKey, origin: str, met: set[bytes]
) -> dict[tuple[str, bool], list[StoredFinding]]:
    """Give the open findings that this run has not met, by their address and whether anybody may see it."""
    async with tools.pool.connection() as db:
        standing = await sources.select_findings(db, key.account_id, origin)
    found: dict[tuple[str, bool], list[StoredFinding]] = {}
    for one in standing:
        url = one.finding.source_url
        if one.last_scan_id == key.scan_id or one.finding.status not in _OPEN or url is None or MASK in url:
            continue  # an address that held a credential is not kept
        if identity(origin, _path(tools, key, one), one.fingerprint) not in met:
            found.setdefault((url, one.finding.source_visibility is Visibility.PUBLIC), []).append(one)
    return found


def _path(tools: RunContext, key: SourceKey, one: StoredFinding) -> str:
    return opened_path(tools.keys, key.account_id, one.finding.id, one.path).decode(
        "utf-8", "surrogateescape"
    )


async def _is_there(
    tools: RunContext, key: SourceKey, one: StoredFinding, again: RefetchResult
) -> bool | None:
    """Tell whether the address still serves the value; None where its answer says nothing about it."""
    if again.failed:
        return None
    if again.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return False
    if (
        again.status != HTTPStatus.OK
        or again.media_type != one.media_type
        or _BEHIND in _path(tools, key, one)
    ):
        return None
    return await asyncio.to_thread(_holds, tools, key, one, again.body)


def _holds(tools: RunContext, key: SourceKey, one: StoredFinding, body: bytes) -> bool | None:
    value = (
        None
        if one.box is None
        else reveal(tools.keys.open(one.box, key.account_id, one.finding.id, mask_all=True))
    )
    if value is not None and value.encode("utf-8", "surrogateescape") in body:
        return True
    hits = scan_content(tools.ruleset, body, Confidence.LOW).hits
    if any(tools.keys.compute_fingerprint(hit.secret) == one.fingerprint for _, hit in hits):
        return True
    return (
        None if value is None else False
    )  # without the value nobody knows whether only the rules have changed


async def _settle(tools: RunContext, key: SourceKey, one: StoredFinding, verdict: bool | None) -> None:
    """Resolve what is gone, and count what is there as seen."""
    if verdict is False:
        await resolve_gone(tools, key, [one.finding.id])
    elif verdict:
        async with tools.pool.connection() as db, db.transaction():
            seen = await sources.mark_seen(
                db, key.account_id, [one.finding.id], scan_id=key.scan_id, now=now()
            )
            await scans.add_counts(db, key.account_id, key.scan_id, key.source, seen=seen)
