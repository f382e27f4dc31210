"""Rule files that name a check in Python: the check exists, and a password is found with its own server."""

import asyncio
from contextlib import suppress

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import load_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.rules.check_spec import load_checks
from outcrop.services.validation import validate_one
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.validation.registry import NAMED_CHECKS
from outcrop.validation.verdict import Verdict
from tests.support.checks import RULES, load_check, run_check
from tests.validation.logins.test_redis import fake_redis
from tests.validation.offline.test_jwt import make_token
from tests.validation.offline.test_private_key import RSA, make_pem

FILES = [
    "aws",
    "azure",
    "google",
    "jwt",
    "private_key",
    "postgres",
    "pgpass",
    "mysql",
    "sqlserver",
    "mongodb",
    "redis",
    "rabbitmq",
    "basic_auth",
]
GIVEN_HOST = {"postgres", "pgpass", "mysql", "mssql", "mongodb", "redis", "amqp", "basic_auth_url"}


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load_ruleset([RULES / f"{name}.toml" for name in FILES], built_in=False)


def companions_of(rules: RuleSet, text: str) -> list[tuple[str, dict[str, str]]]:
    return [
        (reveal(hit.secret), {name: reveal(part) for name, part in hit.companions.items()})
        for hit in find(rules, text.encode(), Confidence.LOW)
        if hit.companion_name is None
    ]


def test_every_named_check_exists_and_is_used_by_a_rule(rules):
    checks = [
        check
        for rule in rules.rules
        for check in load_checks(rule.id, rule.origin)
        if check.named is not None
    ]
    assert {check.named for check in checks} == set(NAMED_CHECKS)
    assert {check.named for check in checks if check.given_host} == GIVEN_HOST


@pytest.mark.parametrize(
    ("text", "login", "server"),
    [
        ("DATABASE_URL=postgres://app:S3cr3t!pw@db.corp:5432/app", "postgres://app", "db.corp:5432/app"),
        (
            "postgres://reporting:Wint3r@Oslo@pg-1.corp/warehouse?sslmode=x",
            "postgres://reporting",
            "pg-1.corp/warehouse",
        ),
        ("postgres://app:S3cr3t!pw@[2001:db8::1]:99/app", "postgres://app", "[2001:db8::1]:99/app"),
        ("postgres://app:S3cr3t!pw@${DB_HOST}/app", "postgres://app", "${DB_HOST}/app"),
        ("mysql+pymysql://app:S3cr3t!pw@10.1.2.3:3306/shop?x=y", "mysql+pymysql://app", "10.1.2.3:3306/shop"),
        ("mongodb://app:S3cr3t!pw@m1.corp:1,m2.corp:2/crm", "mongodb://app", "m1.corp:1,"),
        ("redis://:S3cr3t!pw@cache.corp:6379/0", "redis://", "cache.corp:6379/0"),
        ("amqps://app:S3cr3t!pw@mq.corp/vhost", "amqps://app", "mq.corp/vhost"),
        ("curl https://app:S3cr3t!pw@ci.corp/job/build?x=1", "https://app", "ci.corp/job/build"),
    ],
)
def test_a_password_is_found_with_its_login_and_server(rules, text, login, server):
    (_, parts), *_ = companions_of(rules, text)
    assert (parts["login"], parts["server"]) == (login, server)
    assert "rival" not in parts


def test_each_of_several_uris_keeps_its_own_server(rules):
    for between in ("\n", ",", " ", ";", '", "'):
        text = between.join(
            [
                "postgres://one:S3cr3t!pw1@a.corp:1/x",
                "postgres://two:S3cr3t!pw2@${HOST}/y",
                "postgres://three:S3cr3t!pw3@c.corp:3/z",
            ]
        )
        found = {secret: (parts["login"], parts["server"]) for secret, parts in companions_of(rules, text)}
        assert found == {
            "S3cr3t!pw1": ("postgres://one", "a.corp:1/x"),
            "S3cr3t!pw2": ("postgres://two", "${HOST}/y"),
            "S3cr3t!pw3": ("postgres://three", "c.corp:3/z"),
        }


@pytest.mark.parametrize(
    ("other", "address"),
    [
        (
            "jdbc:postgresql://db-7.corp:5432/crm?user=crm&password=Tr0ub4dor",
            "postgres://app:S3cr3t!pw@db.corp/app",
        ),
        ('"host=pg.corp dbname=crm user=crm password=Tr0ub4dor"', "postgres://app:S3cr3t!pw@db.corp/app"),
        ("jdbc:mysql://db-7.corp/crm?password=Tr0ub4dor", "mysql://app:S3cr3t!pw@db.corp/app"),
        ('sql.Open("mysql", "crm:Tr0ub4dor@tcp(10.0.0.9:3306)/crm")', "mysql://app:S3cr3t!pw@db.corp/app"),
        ("mysqldump -h db.corp -u backup -pTr0ub4dor crm", "mysql://app:S3cr3t!pw@db.corp/app"),
        ("jdbc:oracle:thin:scott/Tr0ub4dor@//ora.corp:1521/XE", "mysql://app:S3cr3t!pw@db.corp/app"),
        ("redis-cli -h cache.corp -a Tr0ub4dor ping", "redis://:S3cr3t!pw@cache.corp"),
    ],
)
def test_a_password_in_another_form_does_not_belong_to_a_uri_near_it(rules, other, address):
    for text in (f"{other}\n{address}\n", f"{address}\n{other}\n"):
        found = dict(companions_of(rules, text))
        assert "rival" in found["Tr0ub4dor"], found


def test_a_host_from_the_text_is_contacted_in_full_mode_only(rules):
    """A scan finds a password in a text, and the check logs in with it."""
    commands: list[list[str]] = []

    async def main(mode: ValidationMode) -> Verdict:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(EOFError):
                await fake_redis(commands=commands)(reader, writer)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with open_http(Egress.parse([], [f"cache.corp:6379=127.0.0.1:{port}"], None)) as http:
                checked = await validate_one(
                    Validator(http, mode), rules, "redis_uri", "REDIS_URL=redis://:S3cr3t%21pw@cache.corp/0"
                )
            await asyncio.sleep(0.05)  # until the server sees the end of the connection
            return checked.verdict

    assert (asyncio.run(main(ValidationMode.SAFE)).status, commands) == ("unvalidated", [])
    verdict = asyncio.run(main(ValidationMode.FULL))
    assert (verdict.status, verdict.services) == ("valid", ("redis",))
    assert ["AUTH", "S3cr3t!pw"] in commands


def test_offline_checks_run_by_their_names():
    assert (
        run_check(Egress(), load_check("jwt", "jwt"), make_token({"alg": "RS256"}, {"exp": 5})).reason
        == "has expired"
    )
    assert "RSA" in run_check(Egress(), load_check("private_key", "private_key"), make_pem(RSA)).reason
