"""Push hooks of code hosts, and the pushes that they report."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from outcrop.limits import PUSH_BRANCHES


class HookHost(StrEnum):
    """The code hosts that send push hooks."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    BITBUCKET = "bitbucket"
    AZUREDEVOPS = "azuredevops"


@dataclass(frozen=True, slots=True)
class Hook:
    """A push hook of an account."""

    id: UUID
    account: str  # slug
    host: HookHost
    created_at: datetime
    created_by: str
    last_delivery_at: datetime | None = None
    ignored: int = 0  # pushes to repositories that no target covers
    ignored_at: datetime | None = None
    ignored_repository: str | None = None  # the last one
    is_behind: bool = False  # deliveries were refused, and the repositories are not compared yet


@dataclass(frozen=True, slots=True)
class ReportedPush:
    """A push as its host reports it. Its texts may contain credentials."""

    host: HookHost
    repository_id: str | None  # the host's own id
    full_name: str | None  # OWNER/NAME, which can have more parts
    addresses: tuple[str, ...]  # of the repository: its page and its clone URLs
    branches: tuple[str, ...] = ()  # also tags
    author: str | None = None  # the person who pushed
    before: str | None = None
    after: str | None = None  # None if the branch was deleted
    url: str | None = None  # the first address as the host wrote it, without a login

    @property
    def repository(self) -> bytes:
        """Return the digest by which pushes to the same repository are recognised."""
        name = self.addresses[0].lower() if self.addresses else f"{self.full_name} {self.repository_id}"
        return hashlib.sha256(f"{self.host} {name}".encode("utf-8", "replace")).digest()


@dataclass(frozen=True, slots=True)
class RunPush:
    """The pushes that one run scans, as users see them: credentials in texts are masked."""

    host: HookHost
    repository: str
    branch: str | None  # of the last push
    author: str | None  # of the last push
    commit: str | None  # that the last push ended at
    branches: tuple[str, ...]
    pushes: int


def encode_push(push: ReportedPush) -> bytes:
    """Return a push as JSON."""
    return json.dumps(asdict(push)).encode()


def decode_push(text: bytes) -> ReportedPush:
    """Return the push of `encode_push`."""
    fields: dict[str, Any] = json.loads(text)
    lists = {name: tuple(fields[name]) for name in ("addresses", "branches")}
    return ReportedPush(**fields | lists | {"host": HookHost(fields["host"])})


def push_fields(push: RunPush | None) -> dict[str, Any] | None:
    """Return the push of a run as plain JSON values."""
    return None if push is None else asdict(push) | {"branches": list(push.branches)}


def build_run_push(fields: dict[str, Any] | None) -> RunPush | None:
    """Return the push of `push_fields`."""
    if fields is None:
        return None
    return RunPush(**fields | {"host": HookHost(fields["host"]), "branches": tuple(fields["branches"])})


def join_heads(pushes: Sequence[ReportedPush], earlier: Sequence[str] = ()) -> list[str]:
    """Return the commits that these pushes, oldest first, and the earlier ones ended at: the last ones."""
    heads = dict.fromkeys([*earlier, *(push.after for push in pushes if push.after is not None)])
    return list(heads)[-PUSH_BRANCHES:]


def join_pushes(pushes: Sequence[ReportedPush], repository: str, earlier: RunPush | None = None) -> RunPush:
    """Return what a run says about these pushes, oldest first, and the earlier ones that it scans."""
    last = pushes[-1]
    known = () if earlier is None else earlier.branches
    branches = dict.fromkeys([*known, *(branch for push in pushes for branch in push.branches)])
    return RunPush(
        last.host,
        repository,
        last.branches[0] if last.branches else None,
        last.author,
        last.after,
        tuple(branches)[-PUSH_BRANCHES:],
        len(pushes) + (0 if earlier is None else earlier.pushes),
    )
