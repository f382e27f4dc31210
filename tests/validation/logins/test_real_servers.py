"""Logins of real database servers, if they are installed. PostgreSQL always is: see `test_postgres.py`."""

from collections.abc import Iterator

import pytest

from outcrop.net.guard import Egress
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.verdict import Verdict
from tests.support import servers
from tests.support.checks import run_check

PASSWORD = "S3cr3t!pw"
MARIADB_USERS = f"""
CREATE DATABASE crm;
CREATE USER app@'%' IDENTIFIED BY '{PASSWORD}';
GRANT SELECT ON crm.* TO app@'%';
CREATE USER boss@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO boss@'%';
INSTALL SONAME 'auth_ed25519';
CREATE USER curve@'%' IDENTIFIED VIA ed25519 USING PASSWORD('{PASSWORD}');
CREATE USER either@'%' IDENTIFIED VIA ed25519 USING PASSWORD('another')
    OR mysql_native_password USING PASSWORD('{PASSWORD}');
CREATE USER locked@'%' IDENTIFIED BY '{PASSWORD}' ACCOUNT LOCK;
CREATE USER expired@'%' IDENTIFIED BY '{PASSWORD}' PASSWORD EXPIRE;
CREATE USER elsewhere@'10.9.9.9' IDENTIFIED BY '{PASSWORD}';
CREATE USER hidden@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE SSL;
CREATE USER machine@'%' IDENTIFIED VIA unix_socket;
"""
REDIS_USERS = f"""
user default on >{PASSWORD} ~* &* +@all
user app on >{PASSWORD} ~app:* +@read +ping
user mute on >{PASSWORD} -@all +get
user off off >{PASSWORD} ~* +@all
"""


def check_login(
    named: str, login: str, port: int, password: str = PASSWORD, database: str = "/crm", ca=None
) -> Verdict:
    egress = Egress.parse([], [f"db.example:7=127.0.0.1:{port}"], ca)
    return run_check(egress, CheckSpec(named=named), password, login=login, server=f"db.example:7{database}")


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with servers.run_mariadb(tmp_path_factory.mktemp("mariadb"), MARIADB_USERS) as port:
        yield port


@pytest.mark.parametrize(
    ("user", "password", "status", "confidence", "services"),
    [
        ("app", PASSWORD, "valid", "high", ("mysql",)),
        ("app", "wrong", "invalid", "medium", ()),
        ("boss", PASSWORD, "valid", "high", ("mysql", "mysql_admin")),
        ("curve", PASSWORD, "valid", "high", ("mysql",)),
        ("curve", "wrong", "invalid", "medium", ()),
        ("either", PASSWORD, "valid", "high", ("mysql",)),
        ("locked", PASSWORD, "invalid", "medium", ()),
        ("expired", PASSWORD, "valid", "high", ("mysql",)),
        ("elsewhere", PASSWORD, "invalid", "medium", ()),
        ("hidden", PASSWORD, "valid", "high", ("mysql",)),
        ("machine", PASSWORD, "unvalidated", "low", ()),
        ("nobody", PASSWORD, "invalid", "medium", ()),
    ],
)
def test_logins_of_a_real_mariadb(mariadb, user, password, status, confidence, services):
    verdict = check_login("mysql", f"mysql://{user}", mariadb, password)
    assert (verdict.status, verdict.confidence, verdict.services) == (status, confidence, services), (
        verdict.reason
    )


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with servers.run_redis(tmp_path_factory.mktemp("redis"), REDIS_USERS) as ports:
        yield ports


@pytest.mark.parametrize(
    ("user", "password", "status", "services"),
    [
        ("", PASSWORD, "valid", ("redis", "redis_admin")),
        ("", "wrong", "invalid", ()),
        ("default", PASSWORD, "valid", ("redis", "redis_admin")),
        ("app", PASSWORD, "valid", ("redis",)),
        ("app", "wrong", "invalid", ()),
        ("mute", PASSWORD, "valid", ("redis",)),
        ("off", PASSWORD, "invalid", ()),
        ("nobody", PASSWORD, "invalid", ()),
    ],
)
def test_logins_of_a_real_redis(redis, user, password, status, services):
    verdict = check_login("redis", f"redis://{user}", redis[0], password, "/0")
    assert (verdict.status, verdict.services) == (status, services), verdict.reason


def test_redis_over_tls_needs_a_trusted_certificate(redis, tmp_path_factory):
    ca = next(tmp_path_factory.getbasetemp().glob("redis*/cert.pem"))
    assert check_login("redis", "rediss://app", redis[1], database="/0", ca=ca).status == "valid"
    assert check_login("redis", "rediss://app", redis[1], database="/0").status == "unreachable", (
        "the certificate is not trusted"
    )


def test_an_open_redis_still_checks_users_with_a_password(tmp_path):
    """Connections without a user are accepted; a user with a password still needs it."""
    with servers.run_redis(
        tmp_path, f"user default on nopass ~* &* -@all +ping\nuser app on >{PASSWORD} ~* +@all\n"
    ) as (port, _):
        assert check_login("redis", "redis://", port, database="/0").status == "unvalidated"
        assert check_login("redis", "redis://app", port, database="/0").status == "valid"
        verdict = check_login("redis", "redis://app", port, "wrong", "/0")
        assert (verdict.status, verdict.confidence) == ("invalid", "medium")


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with servers.run_rabbitmq(
        tmp_path_factory.mktemp("rabbitmq"), f"default_user = orders\ndefault_pass = {PASSWORD}\n"
    ) as ports:
        yield ports


@pytest.mark.parametrize(
    ("login", "password", "status"),
    [
        ("amqp://orders", PASSWORD, "valid"),
        ("amqp://orders", "wrong", "invalid"),
        ("amqp://nobody", PASSWORD, "invalid"),
        ("amqp://guest", "guest", "error"),
    ],
)
def test_logins_of_a_real_rabbitmq(rabbitmq, login, password, status):
    assert check_login("amqp", login, rabbitmq[0], password, "/").status == status


def test_rabbitmq_over_tls_needs_a_trusted_certificate(rabbitmq, tmp_path_factory):
    ca = next(tmp_path_factory.getbasetemp().glob("rabbitmq*/cert.pem"))
    assert check_login("amqp", "amqps://orders", rabbitmq[1], database="/", ca=ca).status == "valid"
    assert check_login("amqp", "amqps://orders", rabbitmq[1], database="/").status == "unreachable"
