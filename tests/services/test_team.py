"""Test invitations, roles, passwords and second factors on a real database."""

import asyncio
from datetime import timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import pyotp
import pytest

from outcrop.domain.account import Account, LinkKind, Member, OneTimeLink, Role
from outcrop.domain.errors import BadInputError, ForbiddenError, NotFoundError, OutcropError, SignInError
from outcrop.services import accounts, sessions, team
from outcrop.services.team import passwords, second_factor
from outcrop.store.db import Pool
from tests.support.backend import Backend
from tests.support.members import (
    NOW,
    PASSWORD,
    add_member,
    everything_stored,
    resume,
    sign_in,
    trail,
    with_pool,
)

DAY, STEP = timedelta(days=1), timedelta(seconds=30)
NEW = "a new long pass phrase"
OWNER, ADMIN, MEMBER = Role.OWNER, Role.ADMIN, Role.MEMBER


pytestmark = pytest.mark.usefixtures("no_failed_sign_ins")


@pytest.fixture
def account(backend: Backend) -> Account:
    return backend.tenant().account


@pytest.fixture
def owner(backend: Backend, account: Account) -> Member:
    return add_member(backend, account, OWNER)


def invite(
    backend: Backend, account: Account, by: Member | str, role: Role = MEMBER, email: str | None = None
) -> tuple[str, str]:
    email = email or f"{uuid4().hex[:12]}@example.com"
    return email, backend.run(lambda db: team.invite_member(db, account, by, email=email, role=role, now=NOW))


def accept(backend: Backend, token: str, password: str = NEW, now: Any = NOW) -> Member:
    return with_pool(backend, lambda pool: team.accept_link(pool, token, password=password, now=now))


def find_link(backend: Backend, token: str, now: Any = NOW) -> OneTimeLink | None:
    return backend.run(lambda db: team.find_link(db, token, now=now))


def members(backend: Backend, account: Account) -> dict[UUID, Role]:
    return {member.id: member.role for member in backend.run(lambda db: accounts.list_members(db, account))}


# --- invitations


def test_an_invitation_creates_one_member(backend: Backend, account: Account, owner: Member) -> None:
    email, token = invite(backend, account, owner, ADMIN)
    link = find_link(backend, token)
    assert link is not None
    assert (link.kind, link.email, link.role, link.account) == (LinkKind.INVITE, email, ADMIN, account.slug)
    assert backend.run(lambda db: team.list_invitations(db, account.id)) == [link]
    assert token not in everything_stored(backend)
    joined = accept(backend, token)
    assert (joined.email, joined.role, joined.account) == (email, ADMIN, account.slug)
    signed = resume(backend, sign_in(backend, email, NEW))
    assert signed is not None
    assert signed.member == joined
    assert find_link(backend, token) is None
    with pytest.raises(NotFoundError):
        accept(backend, token, "yet another pass phrase")
    assert backend.run(lambda db: team.list_invitations(db, account.id)) == []
    assert [line[:4] for line in trail(backend, account)][:2] == [
        (owner.email, "user.invite", email, "ok"),
        (email, "user.accept", email, "ok"),
    ]
    stored = everything_stored(backend)
    assert token not in stored
    assert NEW not in stored


def test_a_link_accepted_many_times_at_once_creates_one_member(
    backend: Backend, account: Account, owner: Member
) -> None:
    email, token = invite(backend, account, owner)

    async def work(pool: Pool) -> list[object]:
        attempts = (team.accept_link(pool, token, password=NEW, now=NOW) for _ in range(4))
        return await asyncio.gather(*attempts, return_exceptions=True)

    results = with_pool(backend, work, size=4)
    names = [type(result).__name__ for result in results]
    assert names.count("Member") == 1
    # On a busy machine a request may not get its turn to hash the password.
    assert set(names) - {"Member"} <= {"NotFoundError", "SignInLimitedError"}
    assert backend.sql("SELECT count(*) FROM members WHERE email = %s", email) == [(1,)]


def test_a_token_in_an_invited_address_is_masked_in_the_audit_trail(
    backend: Backend, account: Account, owner: Member
) -> None:
    value = "xq7rz2" + "lm9tw4kd8vb3" + uuid4().hex[:4]
    _, token = invite(backend, account, owner, email=f"jo+{value}@example.com")
    assert accept(backend, token).email == f"jo+{value}@example.com"
    _, token = invite(backend, account, owner, email=f"{value}@example.com")
    (link,) = backend.run(lambda db: team.list_invitations(db, account.id))
    backend.run(lambda db: team.withdraw_invitation(db, account, owner, link.id, NOW))
    lines = trail(backend, account)
    assert [line[1:3] for line in lines] == [
        ("user.invite", "********@example.com"),
        ("user.accept", "********@example.com"),
        ("user.invite", "********@example.com"),
        ("user.withdraw_invitation", "********@example.com"),
    ]
    assert value not in str(lines)


def test_a_link_ends_by_expiry_withdrawal_or_a_newer_link(
    backend: Backend, account: Account, owner: Member
) -> None:
    email, first = invite(backend, account, owner)
    assert find_link(backend, first, NOW + 7 * DAY - STEP) is not None
    assert find_link(backend, first, NOW + 7 * DAY) is None
    with pytest.raises(NotFoundError):
        accept(backend, first, now=NOW + 7 * DAY)
    _, second = invite(backend, account, owner, email=email.upper())
    assert find_link(backend, first) is None
    link = find_link(backend, second)
    assert link is not None
    backend.run(lambda db: team.withdraw_invitation(db, account, owner, link.id, NOW))
    assert find_link(backend, second) is None
    with pytest.raises(NotFoundError):
        backend.run(lambda db: team.withdraw_invitation(db, account, owner, link.id, NOW))
    for text in ("", "\0", "x" * 43, "\udc80" * 43, first[:-1]):
        assert find_link(backend, text) is None
    assert trail(backend, account)[-1][1:3] == ("user.withdraw_invitation", link.email)


def test_expired_links_are_deleted(backend: Backend, account: Account, owner: Member) -> None:
    invite(backend, account, owner)
    reset = backend.run(
        lambda db: team.create_reset_link(db, owner.email, by="operator", now=NOW + 6 * DAY + 2 * STEP)
    )
    kept = "SELECT kind FROM links WHERE account_id = %s"
    backend.run(lambda db: sessions.delete_expired(db, now=NOW + 7 * DAY - STEP))
    assert len(backend.sql(kept, account.id)) == 2
    backend.run(lambda db: sessions.delete_expired(db, now=NOW + 7 * DAY))
    assert backend.sql(kept, account.id) == [("reset",)]
    assert find_link(backend, reset, NOW + 7 * DAY) is not None


def test_a_bad_password_does_not_use_up_a_link(backend: Backend, account: Account, owner: Member) -> None:
    _, token = invite(backend, account, owner)
    for password in ("short", "x" * 1025, "with\0 a null character"):
        with pytest.raises(BadInputError):
            accept(backend, token, password)
    assert find_link(backend, token) is not None
    for email in ("nobody", "a b@example.com", "a@b\0", "x" * 260 + "@example.com", owner.email.upper()):
        with pytest.raises(BadInputError):
            invite(backend, account, owner, email=email)


def test_an_invitation_does_not_reveal_members_of_other_accounts(
    backend: Backend, account: Account, owner: Member
) -> None:
    stranger = add_member(backend, backend.tenant().account)
    _, token = invite(backend, account, owner, email=stranger.email)
    with pytest.raises(NotFoundError) as refused:
        accept(backend, token)
    with pytest.raises(NotFoundError) as expired:
        accept(backend, token, now=NOW + 7 * DAY)
    assert refused.value.message == expired.value.message
    assert resume(backend, sign_in(backend, stranger.email)) is not None, "the other member has not changed"
    with pytest.raises(BadInputError):
        invite(backend, account, "operator", email=stranger.email)


# --- roles


@pytest.mark.parametrize(
    ("by", "role", "allowed"),
    [
        (OWNER, OWNER, True), (OWNER, ADMIN, True), (OWNER, MEMBER, True),
        (ADMIN, OWNER, False), (ADMIN, ADMIN, False), (ADMIN, MEMBER, True),
        (MEMBER, OWNER, False), (MEMBER, ADMIN, False), (MEMBER, MEMBER, False),
    ],
)  # fmt: skip
def test_members_invite_withdraw_and_remove_only_roles_they_manage(
    backend: Backend, account: Account, owner: Member, by: Role, role: Role, allowed: bool
) -> None:
    actor, other = add_member(backend, account, by), add_member(backend, account, role)
    _, token = invite(backend, account, owner, role)
    link = find_link(backend, token)
    assert link is not None
    before = everything_stored(backend)
    for error, work in [
        (
            ForbiddenError,
            lambda db: team.invite_member(
                db, account, actor, email=f"{uuid4().hex}@example.com", role=role, now=NOW
            ),
        ),
        (ForbiddenError, lambda db: team.withdraw_invitation(db, account, actor, link.id, NOW)),
        (ForbiddenError, lambda db: team.remove_member(db, account, actor, other.id, now=NOW)),
    ]:
        if allowed:
            backend.run(work)
        else:
            with pytest.raises(error):
                backend.run(work)
    assert (other.id not in members(backend, account)) is allowed
    assert allowed or everything_stored(backend) == before, "a refusal changes nothing"


@pytest.mark.parametrize(
    ("by", "was", "to", "allowed"),
    [
        (OWNER, MEMBER, OWNER, True), (OWNER, OWNER, MEMBER, True), (OWNER, ADMIN, MEMBER, True),
        (ADMIN, MEMBER, ADMIN, False), (ADMIN, ADMIN, MEMBER, False),
        (ADMIN, OWNER, MEMBER, False), (ADMIN, MEMBER, OWNER, False),
        (MEMBER, MEMBER, ADMIN, False), (MEMBER, OWNER, MEMBER, False),
    ],
)  # fmt: skip
def test_a_role_is_changed_only_by_members_who_manage_both_roles(
    backend: Backend, account: Account, owner: Member, by: Role, was: Role, to: Role, allowed: bool
) -> None:
    actor, other = add_member(backend, account, by), add_member(backend, account, was)
    token = sign_in(backend, other.email)
    if allowed:
        changed = backend.run(lambda db: team.change_role(db, account, actor, other.id, to, now=NOW))
        assert changed.role is to
        actor_email, action, target, _, detail = trail(backend, account)[-1]
        assert (actor_email, action, target, detail["from"], detail["to"]) == (
            actor.email,
            "user.change_role",
            other.email,
            was,
            to,
        )
    else:
        with pytest.raises(ForbiddenError):
            backend.run(lambda db: team.change_role(db, account, actor, other.id, to, now=NOW))
    signed = resume(backend, token)
    assert signed is not None
    assert signed.member.role is (to if allowed else was), (
        "the new role takes effect at once, in the old session"
    )


def test_members_may_lower_but_not_raise_their_own_role(
    backend: Backend, account: Account, owner: Member
) -> None:
    for role, to in [(MEMBER, ADMIN), (MEMBER, OWNER), (ADMIN, OWNER)]:
        actor = add_member(backend, account, role)
        with pytest.raises(ForbiddenError):
            backend.run(
                lambda db, actor=actor, to=to: team.change_role(db, account, actor, actor.id, to, now=NOW)
            )
    admin = add_member(backend, account, ADMIN)
    assert (
        backend.run(lambda db: team.change_role(db, account, admin, admin.id, MEMBER, now=NOW)).role is MEMBER
    )
    with pytest.raises(ForbiddenError):  # `admin` still has the old role, as a page that was opened before
        backend.run(
            lambda db: team.invite_member(db, account, admin, email="x@example.com", role=MEMBER, now=NOW)
        )


def test_the_last_owner_cannot_be_removed_or_demoted(
    backend: Backend, account: Account, owner: Member
) -> None:
    for by in (owner, "operator"):
        with pytest.raises(BadInputError):
            backend.run(lambda db, by=by: team.change_role(db, account, by, owner.id, ADMIN, now=NOW))
        with pytest.raises(BadInputError):
            backend.run(lambda db, by=by: team.remove_member(db, account, by, owner.id, now=NOW))
    other = add_member(backend, account, OWNER)

    async def both_leave(pool: Pool) -> list[object]:
        async def leave(member: Member, other: Member) -> None:
            async with pool.connection() as db, db.transaction():
                await team.change_role(db, account, member, other.id, MEMBER, now=NOW)

        return list(await asyncio.gather(leave(owner, other), leave(other, owner), return_exceptions=True))

    results = with_pool(backend, both_leave, size=2)
    assert sum(isinstance(result, OutcropError) for result in results) == 1
    assert sorted(members(backend, account).values()) == [MEMBER, OWNER]


def test_removing_a_member_ends_sessions_and_invitations_but_keeps_keys(
    backend: Backend, account: Account, owner: Member
) -> None:
    admin = add_member(backend, account, ADMIN)
    key_id, _ = backend.key(account, member=admin.email)
    session = sign_in(backend, admin.email)
    _, link = invite(backend, account, admin)
    _, kept = invite(backend, account, owner)
    backend.run(lambda db: team.remove_member(db, account, owner, admin.id, now=NOW))
    assert resume(backend, session) is None
    assert find_link(backend, link) is None
    assert find_link(backend, kept) is not None
    assert backend.sql("SELECT revoked_at FROM api_keys WHERE id = %s", UUID(key_id)) == [(None,)]
    actor, action, target, _, detail = trail(backend, account)[-1]
    assert (actor, action, target, detail) == (
        owner.email,
        "user.remove",
        admin.email,
        {"role": "admin", "invitations_withdrawn": 1},
    )
    with pytest.raises(ForbiddenError):
        invite(backend, account, admin)


def test_a_demoted_member_loses_open_invitations(backend: Backend, account: Account, owner: Member) -> None:
    other = add_member(backend, account, OWNER)
    _, link = invite(backend, account, other, OWNER)
    backend.run(lambda db: team.change_role(db, account, owner, other.id, MEMBER, now=NOW))
    assert find_link(backend, link) is None


def test_members_of_another_account_cannot_be_changed(
    backend: Backend, account: Account, owner: Member
) -> None:
    other_account = backend.tenant().account
    stranger = add_member(backend, other_account, MEMBER)
    _, token = invite(backend, other_account, "operator")
    link = find_link(backend, token)
    assert link is not None
    for work in (
        lambda db: team.change_role(db, account, owner, stranger.id, ADMIN, now=NOW),
        lambda db: team.remove_member(db, account, owner, stranger.id, now=NOW),
        lambda db: team.withdraw_invitation(db, account, owner, link.id, NOW),
    ):
        with pytest.raises(NotFoundError):
            backend.run(work)
    for work in (  # type: ignore[assignment]
        lambda db: team.change_role(db, other_account, owner, stranger.id, ADMIN, now=NOW),
        lambda db: team.remove_member(db, other_account, owner, stranger.id, now=NOW),
        lambda db: team.invite_member(db, other_account, owner, email="x@example.com", role=MEMBER, now=NOW),
    ):
        with pytest.raises(ForbiddenError):
            backend.run(work)
    assert backend.run(lambda db: team.list_invitations(db, account.id)) == []
    assert members(backend, other_account) == {stranger.id: MEMBER}


# --- passwords


def test_a_reset_link_sets_the_password_once_and_ends_every_session(
    backend: Backend, account: Account, owner: Member
) -> None:
    session = sign_in(backend, owner.email)
    earlier = backend.run(lambda db: team.create_reset_link(db, owner.email, by="operator", now=NOW))
    token = backend.run(lambda db: team.create_reset_link(db, owner.email.upper(), by="operator", now=NOW))
    assert find_link(backend, earlier) is None
    link = find_link(backend, token, NOW + DAY - STEP)
    assert link is not None
    assert (link.kind, link.email, link.account) == (LinkKind.RESET, owner.email, account.slug)
    assert find_link(backend, token, NOW + DAY) is None
    assert backend.run(lambda db: team.list_invitations(db, account.id)) == []
    assert resume(backend, session) is not None, "an unused link changes nothing"
    for _ in range(5):
        with pytest.raises(SignInError):
            sign_in(backend, owner.email, "forgotten pass phrase")
    assert accept(backend, token) == owner
    assert resume(backend, session) is None
    assert resume(backend, sign_in(backend, owner.email, NEW)) is not None, (
        "earlier failures do not count any more"
    )
    with pytest.raises(SignInError):
        sign_in(backend, owner.email)
    with pytest.raises(NotFoundError):
        accept(backend, token)
    with pytest.raises(NotFoundError):
        backend.run(lambda db: team.create_reset_link(db, "nobody@example.com", by="operator", now=NOW))
    actions = [(actor, action) for actor, action, *_ in trail(backend, account) if action.startswith("user.")]
    assert actions == [("operator", "user.reset_link")] * 2 + [(owner.email, "user.set_password")]


def change_password(backend: Backend, member: Member, old: str, new: str, keep: UUID) -> None:
    with_pool(
        backend,
        lambda pool: passwords.change_password(pool, member, old=old, new=new, keep=keep, now=NOW),
    )


def test_a_changed_password_ends_the_other_sessions(
    backend: Backend, account: Account, owner: Member
) -> None:
    own_session, other = sign_in(backend, owner.email), sign_in(backend, owner.email)
    signed = resume(backend, own_session)
    assert signed is not None
    with pytest.raises(SignInError) as wrong:
        change_password(backend, owner, "a wrong pass phrase", NEW, signed.session_id)
    assert wrong.value.code == "wrong"
    with pytest.raises(BadInputError):
        change_password(backend, owner, PASSWORD, "short", signed.session_id)
    assert resume(backend, other) is not None
    change_password(backend, owner, PASSWORD, NEW, signed.session_id)
    assert resume(backend, own_session) is not None
    assert resume(backend, other) is None
    assert sign_in(backend, owner.email, NEW)
    lines = [
        (action, outcome)
        for _, action, _, outcome, _ in trail(backend, account)
        if action == "user.change_password"
    ]
    assert lines == [("user.change_password", "failed"), ("user.change_password", "ok")]
    stored = everything_stored(backend)
    assert NEW not in stored
    assert PASSWORD not in stored


def test_a_stolen_session_cannot_guess_the_password(
    backend: Backend, account: Account, owner: Member
) -> None:
    codes = []
    for _ in range(6):
        with pytest.raises(SignInError) as refusal:
            change_password(backend, owner, "a wrong pass phrase", NEW, uuid4())
        codes.append(refusal.value.code)
    assert codes == ["wrong"] * 5 + ["limited"]


# --- the second factor


def begin_totp(backend: Backend, member: Member, password: str = PASSWORD) -> second_factor.TotpSetup:
    return with_pool(
        backend, lambda pool: second_factor.begin_totp(pool, backend.keys, member, password=password, now=NOW)
    )


def test_a_stolen_session_cannot_turn_the_second_factor_on(
    backend: Backend, account: Account, owner: Member
) -> None:
    for password in ("", "a wrong pass phrase"):
        with pytest.raises(SignInError):
            begin_totp(backend, owner, password)
    assert backend.sql("SELECT count(*) FROM second_factors WHERE member_id = %s", owner.id) == [(0,)]
    lines = [(action, outcome) for _, action, _, outcome, _ in trail(backend, account)]
    assert lines == [("user.totp_begin", "failed")] * 2


def enable_totp(backend: Backend, account: Account, member: Member) -> tuple[pyotp.TOTP, list[str]]:
    setup = begin_totp(backend, member)
    app = cast("pyotp.TOTP", pyotp.parse_uri(setup.uri))
    assert app.secret == setup.secret
    codes = backend.run(lambda db: second_factor.confirm_totp(db, backend.keys, member, app.at(NOW), NOW))
    return app, codes


def refusal_code(backend: Backend, email: str, **options: Any) -> str:
    with pytest.raises(SignInError) as error:
        sign_in(backend, email, **options)
    return error.value.code


def test_a_second_factor_has_no_effect_until_it_is_confirmed(
    backend: Backend, account: Account, owner: Member
) -> None:
    setup = begin_totp(backend, owner)
    assert backend.run(lambda db: second_factor.count_recovery_codes(db, account, owner)) is None
    assert sign_in(backend, owner.email)
    with pytest.raises(BadInputError):
        backend.run(lambda db: second_factor.confirm_totp(db, backend.keys, owner, "000000", NOW + 365 * DAY))
    app, codes = enable_totp(backend, account, owner)
    assert app.secret != setup.secret
    assert backend.run(lambda db: second_factor.count_recovery_codes(db, account, owner)) == 10
    with pytest.raises(BadInputError):
        begin_totp(backend, owner)
    with pytest.raises(BadInputError):
        backend.run(
            lambda db: second_factor.confirm_totp(db, backend.keys, owner, app.at(NOW + STEP), NOW + STEP)
        )
    stored = everything_stored(backend)
    for secret in (app.secret, setup.secret, *codes, *(code.replace("-", "") for code in codes)):
        assert secret not in stored


def test_a_code_is_required_and_works_once(backend: Backend, account: Account, owner: Member) -> None:
    app, _ = enable_totp(backend, account, owner)
    later = NOW + 10 * STEP
    assert refusal_code(backend, owner.email, now=later) == "code_needed"
    assert refusal_code(backend, owner.email, code=" ", now=later) == "code_needed"
    assert refusal_code(backend, owner.email, password="a wrong pass phrase", now=later) == "wrong", (
        "the second factor is not mentioned before the password is correct"
    )
    assert refusal_code(backend, owner.email, code=app.at(NOW), now=NOW) == "wrong", (
        "the code of the confirmation is used up"
    )
    assert resume(backend, sign_in(backend, owner.email, code=app.at(later), now=later), later) is not None
    assert refusal_code(backend, owner.email, code=app.at(later), now=later) == "wrong"
    assert refusal_code(backend, owner.email, code=app.at(later - STEP), now=later) == "wrong"
    assert sign_in(backend, owner.email, code=app.at(later + 2 * STEP), now=later + STEP)


def test_a_missing_code_is_no_failure_but_wrong_codes_are_limited(
    backend: Backend, account: Account, owner: Member
) -> None:
    enable_totp(backend, account, owner)
    later = NOW + 10 * STEP
    for _ in range(5):
        assert refusal_code(backend, owner.email, now=later) == "code_needed"
        assert refusal_code(backend, owner.email, code="abc", now=later) == "wrong"
    assert refusal_code(backend, owner.email, now=later) == "limited"
    lines = [detail["wrong"] for *_, outcome, detail in trail(backend, account) if outcome == "failed"]
    assert lines == ["code"] * 5


def test_concurrent_sign_ins_with_one_code_succeed_once(
    backend: Backend, account: Account, owner: Member
) -> None:
    app, _ = enable_totp(backend, account, owner)
    later = NOW + 10 * STEP

    async def work(pool: Pool) -> list[object]:
        options: dict[str, Any] = {
            "email": owner.email,
            "password": PASSWORD,
            "code": app.at(later),
            "address": "",
            "agent": "",
            "now": later,
        }
        return await asyncio.gather(
            *(sessions.sign_in(pool, backend.keys, **options) for _ in range(3)), return_exceptions=True
        )

    assert sorted(type(result).__name__ for result in with_pool(backend, work, size=3)) == [
        "SignInError",
        "SignInError",
        "str",
    ]


def test_each_recovery_code_works_once_and_for_its_member_only(
    backend: Backend, account: Account, owner: Member
) -> None:
    _, codes = enable_totp(backend, account, owner)
    other = add_member(backend, account)
    enable_totp(backend, account, other)
    assert len(set(codes)) == 10
    assert refusal_code(backend, other.email, code=codes[0]) == "wrong"
    assert sign_in(backend, owner.email, code=codes[0].upper())
    assert refusal_code(backend, owner.email, code=codes[0]) == "wrong"
    assert sign_in(backend, owner.email, code=codes[1].replace("-", ""))
    assert backend.run(lambda db: second_factor.count_recovery_codes(db, account, owner)) == 8
    assert trail(backend, account)[-1][4]["recovery_codes_left"] == 8


def test_a_second_factor_is_disabled_by_the_password_or_the_operator(
    backend: Backend, account: Account, owner: Member
) -> None:
    enable_totp(backend, account, owner)
    with pytest.raises(SignInError):
        with_pool(
            backend,
            lambda pool: second_factor.disable_totp(pool, owner, password="a wrong pass phrase", now=NOW),
        )
    assert refusal_code(backend, owner.email) == "code_needed"
    with_pool(backend, lambda pool: second_factor.disable_totp(pool, owner, password=PASSWORD, now=NOW))
    assert sign_in(backend, owner.email)
    assert backend.run(lambda db: second_factor.count_recovery_codes(db, account, owner)) is None
    with pytest.raises(BadInputError):
        with_pool(backend, lambda pool: second_factor.disable_totp(pool, owner, password=PASSWORD, now=NOW))
    enable_totp(backend, account, owner)
    for _ in range(2):
        assert (
            backend.run(
                lambda db: second_factor.disable_totp_by_operator(db, owner.email, by="operator", now=NOW)
            )
            == owner
        )
    assert sign_in(backend, owner.email)
    actions = [
        (actor, action, outcome)
        for actor, action, _, outcome, _ in trail(backend, account)
        if action.startswith("user.totp_o")
    ]
    assert actions == [
        (owner.email, "user.totp_on", "ok"),
        (owner.email, "user.totp_off", "failed"),
        (owner.email, "user.totp_off", "ok"),
        (owner.email, "user.totp_on", "ok"),
        ("operator", "user.totp_off", "ok"),
    ]
