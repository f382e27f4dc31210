"""What stands elsewhere, looked at without a database: a GitHub owner's repositories, gists, a commit, a web site.

Each function runs an event loop of its own and ends it: what follows forks processes, which must not have one.
"""

import asyncio
from dataclasses import dataclass

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import Spec
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.sources.git.clone import Remote
from outcrop.sources.hosts.github import GitHub, GitHubError
from outcrop.sources.located import Located, Outcome, Progress, for_path, member
from outcrop.sources.resolve_target import Found, sources_of
from outcrop.sources.web.crawl import Site, crawl


@dataclass(frozen=True, slots=True)
class Reach:
    """How to get there."""

    egress: Egress
    github_url: str
    token: Secret | None = None

    def remote(self, found: Found) -> Remote:
        """Give a repository with the operator's token, where it is on the host that the token is for."""
        own = self.token is not None and found.github
        return Remote(found.url, ("x-access-token", reveal(self.token)) if own and self.token else None)


def list_sources(spec: Spec, reach: Reach, gaps: list[Gap]) -> list[Found]:
    """Give what a target consists of."""

    async def listed() -> list[Found]:
        async with open_http(reach.egress) as http:
            host = GitHub(http, reach.github_url, reach.token)
            return [found async for found in sources_of(spec, host, own=reach.token is not None, gaps=gaps)]

    try:
        return asyncio.run(listed())
    except GitHubError as error:
        raise OperatorError(f"{spec.shown}: {error.message}") from None


def look_at_site(
    found: Found, reach: Reach, ruleset: RuleSet, floor: Confidence, progress: Progress
) -> Outcome:
    """Crawl a site and scan what it serves as it comes."""
    outcome = Outcome()

    async def look() -> None:
        async with open_http(reach.egress) as http:
            async for resource in crawl(
                http, Site.of(found.url, found.options, found.include, found.exclude), outcome.gap
            ):
                outcome.files += 1
                outcome.size += len(resource.body)
                path = resource.file_path.encode("utf-8", "surrogateescape")
                held = scan_content(ruleset, resource.body, floor)
                outcome.located += [
                    Located(hit, member(path, inner), source_type=resource.source_type, url=resource.url)
                    for inner, hit in for_path(held, path)
                ]
                for reason in held.gaps:
                    outcome.gap(resource.url, reason)
                progress(outcome)

    asyncio.run(look())
    return outcome
