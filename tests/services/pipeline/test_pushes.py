"""Test what a push becomes: a run of that repository and nothing else, and no finding is resolved by it."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.domain.push import Hook, HookHost, ReportedPush, encode_push
from outcrop.domain.scan import ScanRun, ScanStatus, Trigger
from outcrop.domain.target import Schedule, Target, TargetKind, TargetSpec
from outcrop.services.pipeline.plan import plan_run
from outcrop.services.pipeline.pushes.start import compare_refused, covers, drop_dominated, start_pushed_runs
from outcrop.sources.repository_address import normalise_repository
from outcrop.store import hooks
from outcrop.store.hooks import StoredPush
from outcrop.store.runs import scans
from tests.support.github_host import NAME
from tests.support.pipeline import Pipeline, ServedRepository, owner_spec, plain_spec, repository_spec, token


def add_hook(pipeline: Pipeline, account: Account, host: HookHost = HookHost.GITHUB) -> UUID:
    hook = Hook(uuid4(), account.slug, host, now(), "a test")

    async def add() -> None:
        async with pipeline.context.pool.connection() as db:
            await hooks.insert(db, account.id, hook, token_digest=hook.id.bytes * 2, secret_box=b"x")
            await hooks.count_delivery(db, account.id, hook.id, limit=1)

    pipeline.wait(add())
    return hook.id


def push_to(full_name: str, at: str = NAME, **fields: Any) -> ReportedPush:
    address = normalise_repository(f"https://{at}/{full_name}")
    assert address is not None
    commits = ("1" * 40, "2" * 40)
    push = ReportedPush(HookHost.GITHUB, "1", full_name, (address,), ("main",), "Ada", *commits, address)
    return replace(push, **fields)


def deliver(pipeline: Pipeline, account: Account, *pushes: ReportedPush, hook: UUID | None = None) -> int:
    """Store pushes to one repository and run their job; return how many runs it started."""
    hook_id = hook or add_hook(pipeline, account)

    async def store() -> int:
        for push in pushes:
            id_ = uuid4()
            box = pipeline.context.keys.seal_bytes(encode_push(push), account.id, id_)
            async with pipeline.context.pool.connection() as db:
                await hooks.insert_push(db, account.id, StoredPush(id_, hook_id, box), push.repository)
        return await start_pushed_runs(pipeline.context, account.id, pushes[-1].repository)

    return pipeline.wait(store())


def runs(pipeline: Pipeline, account: Account) -> list[ScanRun]:
    # In the order in which they began to wait: times are whole seconds, ids are random.
    rows = pipeline.sql(
        """SELECT s.id FROM scans s JOIN audit a ON a.account_id = s.account_id AND a.target = s.id::text
           WHERE s.account_id = %s AND a.action = 'scan.start' ORDER BY a.id""",
        account.id,
    )
    return [pipeline.get_run(account, id_) for (id_,) in rows]


def execute(pipeline: Pipeline, account: Account, run: ScanRun) -> ScanRun:
    """Plan a run and scan its sources."""
    for name in pipeline.wait(plan_run(pipeline.context, account.id, run.id)):
        pipeline.scan_source(account, run.id, name)
    return pipeline.get_run(account, run.id)


@pytest.fixture
def shop(pipeline: Pipeline) -> ServedRepository:
    """Return a repository of an owner that has another one."""
    owner = pipeline.add_owner()
    pipeline.add_repository(f"{owner}/other", {"a.env": f"token = {token('other')}\n"})
    return pipeline.add_repository(f"{owner}/shop", {"readme.md": "hello\n"}, has_wiki=True)


def test_a_push_to_a_repository_of_an_owner_is_a_run_of_that_repository(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    target = pipeline.add_target(account, owner_spec(shop.full_name.partition("/")[0]))
    shop.push({"a.env": f"token = {token('pushed')}\n"})
    leak = token("branch")
    assert deliver(pipeline, account, push_to(shop.full_name, branches=(f"fix-{leak}",), author=leak)) == 1
    (queued,) = runs(pipeline, account)
    assert (queued.trigger, queued.status, queued.type) == (Trigger.PUSH, ScanStatus.QUEUED, "github")
    assert queued.push is not None
    assert (queued.push.host, queued.push.commit, queued.push.pushes) == (HookHost.GITHUB, "2" * 40, 1)
    assert leak not in repr(queued)
    assert leak not in repr(pipeline.sql("SELECT * FROM scans WHERE account_id = %s", account.id))
    assert queued.push.branch is not None
    assert queued.push.branch.startswith("fix-ghp_")
    assert pipeline.sql("SELECT target_id FROM scans WHERE account_id = %s", account.id) == [(target.id,)]
    ended = execute(pipeline, account, queued)
    assert (ended.status, ended.findings_new, ended.progress["targets"]) == (ScanStatus.COMPLETED, 1, 1)
    assert [finding["repo_full_name"] for finding in pipeline.findings(account)] == [shop.full_name]
    assert [event for event, _ in pipeline.events(account)] == ["finding.new"]
    lanes = pipeline.sql(
        "SELECT DISTINCT queue_name, priority FROM procrastinate_jobs WHERE (args ->> 'account_id')::int = %s",
        account.id,
    )
    assert lanes == [("pushes", 10)]
    actions = pipeline.sql(
        "SELECT actor, detail FROM audit WHERE account_id = %s AND action = 'scan.start'", account.id
    )
    assert [(actor, detail["trigger"]) for actor, detail in actions] == [("push", "push")]


def test_several_waiting_pushes_are_one_run_and_a_later_one_is_another(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    pipeline.add_target(account, repository_spec(shop.full_name))
    first = push_to(shop.full_name)
    second = push_to(shop.full_name, branches=("fix",), author="Ben", after="3" * 40)
    assert deliver(pipeline, account, first, second) == 1
    assert deliver(pipeline, account, first) == 0
    (run,) = runs(pipeline, account)
    assert run.push is not None
    assert (run.push.pushes, run.push.branches, run.push.author) == (3, ("main", "fix"), "Ada")
    names = pipeline.wait(plan_run(pipeline.context, account.id, run.id))
    assert deliver(pipeline, account, second) == 0  # planned, but not begun
    pipeline.scan_source(account, run.id, names[0])
    assert deliver(pipeline, account, second) == 1
    assert [run.push and run.push.pushes for run in runs(pipeline, account)] == [4, 1]


def test_a_second_push_in_the_same_second_is_not_taken_for_the_first(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    """GitHub's time of the last push has whole seconds."""
    pipeline.add_target(account, owner_spec(shop.full_name.partition("/")[0]))
    assert deliver(pipeline, account, push_to(shop.full_name)) == 1
    execute(pipeline, account, runs(pipeline, account)[0])
    shop.repo.commit({"a.env": f"token = {token('second')}\n"})  # the API shows the same time
    assert deliver(pipeline, account, push_to(shop.full_name)) == 1
    assert execute(pipeline, account, runs(pipeline, account)[1]).findings_new == 1


def test_a_false_push_resolves_nothing(pipeline: Pipeline, account: Account, shop: ServedRepository) -> None:
    pipeline.add_target(account, repository_spec(shop.full_name))
    shop.push({"a.env": f"token = {token('there')}\n"})
    for number, push in enumerate(
        (push_to(shop.full_name), push_to(shop.full_name, branches=("gone",), before="4" * 40, after=None))
    ):
        assert deliver(pipeline, account, push) == 1
        run = execute(pipeline, account, runs(pipeline, account)[number])
        assert (run.status, run.findings_seen, run.findings_resolved) == (ScanStatus.COMPLETED, 1, 0)
    assert pipeline.finding(account)["status"] == "active"


def test_a_push_to_an_unknown_repository_is_counted_as_ignored(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    pipeline.add_target(account, repository_spec(shop.full_name))
    hook_id, stranger = add_hook(pipeline, account), f"{shop.full_name}2"
    assert deliver(pipeline, account, push_to(stranger), push_to(stranger), hook=hook_id) == 0
    assert runs(pipeline, account) == []
    ignored = pipeline.sql("SELECT ignored, ignored_repository FROM hooks WHERE id = %s", hook_id)
    assert ignored == [(2, f"https://{NAME}/{stranger}")]
    assert pipeline.sql("SELECT 1 FROM pushes WHERE account_id = %s", account.id) == []


def test_a_push_to_a_repository_of_another_account_starts_nothing_there(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    pipeline.add_target(account, repository_spec(shop.full_name))
    other = pipeline.create_account()
    assert deliver(pipeline, other, push_to(shop.full_name)) == 0
    assert runs(pipeline, account) == runs(pipeline, other) == []


def test_a_repository_that_the_target_leaves_out_is_a_gap(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    owner = shop.full_name.partition("/")[0]
    pipeline.add_target(account, owner_spec(owner, exclude=("shop",)))
    assert deliver(pipeline, account, push_to(shop.full_name)) == 1
    run = execute(pipeline, account, runs(pipeline, account)[0])
    assert [(gap.what, gap.why) for gap in run.coverage_gaps] == [
        (shop.full_name, "was pushed to, but the target leaves it out")
    ]
    assert (run.progress["targets"], pipeline.findings(account)) == (0, [])


def test_a_push_on_a_host_without_an_api_is_found_by_its_address(
    pipeline: Pipeline, account: Account
) -> None:
    owner = pipeline.add_owner()
    repository = pipeline.add_repository(f"{owner}/plain", {"a.env": f"token = {token('plain')}\n"})
    pipeline.add_target(account, plain_spec(repository.full_name))
    push = push_to(repository.full_name, "git.example", host=HookHost.GITLAB)
    assert deliver(pipeline, account, push) == 1
    assert execute(pipeline, account, runs(pipeline, account)[0]).findings_new == 1
    assert deliver(pipeline, account, push) == 1
    run = execute(pipeline, account, runs(pipeline, account)[1])
    assert (run.findings_new, run.findings_seen) == (0, 1)


def test_a_scheduled_run_is_not_delayed_by_a_push(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    target = pipeline.add_target(account, repository_spec(shop.full_name))
    assert deliver(pipeline, account, push_to(shop.full_name)) == 1

    async def has_unfinished() -> bool:
        async with pipeline.context.pool.connection() as db:
            return await scans.has_unfinished_run(db, account.id, target.id)

    assert pipeline.wait(has_unfinished()) is False


def test_after_refused_deliveries_all_targets_on_the_host_are_run_once(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    owner = shop.full_name.partition("/")[0]
    pipeline.add_target(account, owner_spec(owner))
    pipeline.add_target(account, TargetSpec(TargetKind.SITE, "https://www.example.com/"))
    hook_id = add_hook(pipeline, account)

    async def refuse() -> int:
        async with pipeline.context.pool.connection() as db:
            seconds = await hooks.count_delivery(db, account.id, hook_id, limit=1)
            await db.execute(
                "UPDATE hook_windows SET compare_at = clock_timestamp() WHERE hook_id = %s", [hook_id]
            )
            return seconds

    assert pipeline.wait(refuse()) > 0
    pipeline.wait(compare_refused(pipeline.context))
    pipeline.wait(refuse())
    pipeline.wait(compare_refused(pipeline.context))  # the first run has not begun, so it is enough
    (run,) = runs(pipeline, account)
    assert (run.trigger, run.target, run.push) == (Trigger.PUSH, f"github:{owner}", None)
    lane = "SELECT queue_name, priority FROM procrastinate_jobs WHERE (args ->> 'account_id')::int = %s"
    assert pipeline.sql(lane, account.id) == [("outcrop", 5)]
    assert execute(pipeline, account, run).findings_new == 1  # of the other repository
    counts = pipeline.sql(
        "SELECT detail FROM audit WHERE account_id = %s AND action = 'hook.compare' ORDER BY id", account.id
    )
    assert counts == [({"runs": 1},), ({"runs": 0},)]


# --- which targets cover a repository


def target(kind: TargetKind, name: str, *include: str, has_credential: bool = False) -> Target:
    return Target(uuid4(), TargetSpec(kind, name, include), Schedule.OFF, now(), None, has_credential)


@pytest.mark.parametrize(
    ("kind", "name", "is_covered"),
    [
        (TargetKind.OWNER, "github:Acme", True),
        (TargetKind.OWNER, "github:acme2", False),
        (TargetKind.OWNER, "gitlab:acme", False),
        (TargetKind.REPOSITORY, "https://github.com/ACME/Shop", True),
        (TargetKind.REPOSITORY, "https://github.com/acme/shop2", False),
        (TargetKind.REPOSITORY, "https://github.example/acme/shop.git", False),
        (TargetKind.GISTS, "gists:acme", False),
        (TargetKind.COMMIT, "https://github.com/acme/shop/commit/0123abc", False),
        (TargetKind.SITE, "https://github.com/acme/shop", False),
    ],
)
def test_a_target_covers_its_repository_or_those_of_its_owner(
    kind: TargetKind, name: str, *, is_covered: bool
) -> None:
    assert covers(target(kind, name), push_to("Acme/shop", "github.com")) is is_covered


def test_a_group_of_a_self_hosted_instance_covers_its_subgroups_there_and_nowhere_else() -> None:
    spec = TargetSpec(TargetKind.OWNER, "gitlab:Acme/team", host_url="https://git.example.com/gitlab")
    group = Target(uuid4(), spec, Schedule.OFF, now())
    address = "https://git.example.com/gitlab/acme/team/sub/shop"
    push = replace(push_to("acme/team/sub/shop"), host=HookHost.GITLAB, addresses=(address,))
    assert covers(group, push)
    assert not covers(group, replace(push, addresses=(address.replace("/team/", "/team2/"),)))
    assert not covers(group, replace(push, addresses=(address.replace("git.", "git2."),)))
    assert not covers(group, replace(push, host=HookHost.GITEA))


def test_a_push_without_an_address_is_found_by_its_name() -> None:
    push = replace(push_to("ACME/shop"), host=HookHost.BITBUCKET, addresses=())
    name = "https://bitbucket.example.com/scm/acme/shop.git"
    assert covers(target(TargetKind.REPOSITORY, name), push)
    assert not covers(target(TargetKind.REPOSITORY, f"{name}2"), push)


def test_a_target_is_dropped_only_if_another_reads_all_that_it_reads() -> None:
    owner = target(TargetKind.OWNER, "github:acme")
    single = target(TargetKind.REPOSITORY, "https://github.com/acme/shop")
    part = target(TargetKind.REPOSITORY, "https://github.com/acme/shop", "src/*")
    private = target(TargetKind.OWNER, "github:acme", has_credential=True)
    assert drop_dominated([owner, single, part]) == [single]
    assert drop_dominated([owner, part]) == [owner, part]
    assert drop_dominated([single, private]) == [single, private]
