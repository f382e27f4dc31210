"""Parse connection strings: options that make a driver do more than log in are ignored or refused."""

import dataclasses

import pytest

from outcrop.validation.attempt import UncheckableError
from outcrop.validation.logins.uri import ServerLogin, parse_dsn, parse_uri

PORTS = {"postgresql": 5432, "mysql": 3306, "mongodb": 27017}


def read(login: str, server: str, password: str = "pw") -> ServerLogin:
    return parse_uri(login, server, password, PORTS)


@pytest.mark.parametrize(
    ("login", "server", "expected"),
    [
        ("postgresql://app", "db.corp", ("db.corp", 5432, "app", "")),
        ("PostgreSQL+psycopg2://app", "db.corp:6000/crm", ("db.corp", 6000, "app", "crm")),
        ("mysql+pymysql://a%40b", "10.0.0.1/x%2Fy", ("10.0.0.1", 3306, "a@b", "x/y")),
        ("postgresql://app", "[2001:db8::1]:99/d", ("2001:db8::1", 99, "app", "d")),
        ("postgresql://app", "[fe80::1%25eth0]/d", ("fe80::1", 5432, "app", "d")),
        (
            "postgresql://app",
            "db.corp/crm?host=evil.example&port=1&user=root",
            ("db.corp", 5432, "app", "crm"),
        ),
        (
            "postgresql://app",
            "db.corp?sslkey=/etc/shadow&sslcert=/a&passfile=/b&service=c&sslrootcert=/d",
            ("db.corp", 5432, "app", ""),
        ),
        (
            "postgresql://app",
            "db.corp/crm?options=-c%20search_path%3Devil&hostaddr=127.0.0.1",
            ("db.corp", 5432, "app", "crm"),
        ),
        (
            "mysql://app",
            "db.corp/crm?allowLoadLocalInfile=true&autoDeserialize=true#x",
            ("db.corp", 3306, "app", "crm"),
        ),
    ],
)
def test_only_the_login_is_read_from_a_uri(login, server, expected):
    parsed = read(login, server)
    assert (parsed.host, parsed.port, parsed.user, parsed.database) == expected
    assert {field.name for field in dataclasses.fields(parsed)} == {
        "scheme",
        "host",
        "port",
        "user",
        "password",
        "database",
        "requires_tls",
        "requires_certificate",
    }


@pytest.mark.parametrize(
    ("login", "server"),
    [
        ("mongodb+srv://app", "cluster0.mongodb.net"),
        ("postgresql://app", "a.corp,b.corp/x"),
        ("postgresql://app", "a.corp:1,b.corp:2"),
        ("postgresql://app", "%2Fvar%2Frun%2Fpostgresql/x"),
        ("postgresql://app", "/var/run/postgresql"),
        ("postgresql://app", ""),
        ("postgresql://app", ":5432/x"),
        ("postgresql://app", "${DB_HOST}/x"),
        ("postgresql://app", "db..corp"),
        ("postgresql://app", "-db.corp"),
        ("postgresql://app", "db.corp:0"),
        ("postgresql://app", "db.corp:65536"),
        ("postgresql://app", "db.corp:５４３２"),
        ("postgresql://app", "db.corp:54 32"),
        ("postgresql://app", "[::1"),
        ("postgresql://app", "[not an address]"),
        ("postgresql://app", "db\n.corp"),
        ("postgresql://app", "dätabase.corp"),
        ("postgresql://", "db.corp"),
        ("postgresql://a%00b", "db.corp"),
        ("postgresql://a%ffb", "db.corp"),
        ("postgresql://app", "db.corp/a%00b"),
        ("postgresql://" + "a" * 600, "db.corp"),
        ("file://app", "db.corp"),
        ("unix+postgresql://app", "db.corp"),
        ("app", "db.corp"),
    ],
)
def test_a_uri_without_exactly_one_host_and_user_is_refused(login, server):
    with pytest.raises(UncheckableError):
        read(login, server)


def test_a_password_is_decoded_and_not_in_repr_or_errors():
    parsed = read("postgresql://app", "db.corp", "S3cr3t%21%40pw+x%zz")
    assert parsed.password == "S3cr3t!@pw+x%zz"
    assert "S3cr3t" not in repr(parsed)
    with pytest.raises(UncheckableError) as refused:
        read("postgresql://app", "db.corp", "S3cr3t%00")
    assert "S3cr3t" not in str(refused.value)


def test_a_libpq_string_is_read_the_same_way():
    parsed = parse_dsn(
        "host=db.corp port=6000 user=crm dbname=crm sslkey=/etc/shadow passfile=/x ", "pw", 5432
    )
    assert (parsed.host, parsed.port, parsed.user, parsed.database) == ("db.corp", 6000, "crm", "crm")
    assert parse_dsn("host=db.corp user=crm ", "p%41w", 5432).password == "p%41w"
    for refused in (
        "host=/run/pg user=a ",
        "host=a,b user=a ",
        "user=a ",
        "host=a ",
        "service=x host=a user=b ",
        "host=a user=b port=x ",
    ):
        with pytest.raises(UncheckableError):
            parse_dsn(refused, "pw", 5432)
