"""Whatever is sent: a status the specification names, strict JSON, within a second, and nothing changed."""

import http.client
import json
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Server, Tenant
from tests.support.factories import make_line, make_scan

LIST = [
    "status",
    "source_type",
    "validation",
    "suppressed",
    "service",
    "min_score",
    "date_from",
    "date_to",
    "q",
]
LIST += ["page", "per_page", "order_by", "order_dir"]
SCANS = ["type", "limit", "page"]
CLOSING = ["resolve", "restrict", "false_positive"]
GOOD = {
    "status": "active",
    "source_type": "repo",
    "validation": "valid",
    "suppressed": "false",
    "service": "aws",
    "min_score": "1",
    "date_from": "2026-01-01",
    "date_to": "2026-12-31",
    "q": "settings",
    "page": "1",
    "per_page": "10",
    "order_by": "composite_score",
    "order_dir": "asc",
    "type": "github",
    "limit": "10",
}
SECONDS = 60  # a busy machine is slow; the service itself answers 500 after 4.5 seconds


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return strict(self.body)

    @property
    def wrong(self) -> list[list[str | int]]:
        """The places that a parameter error names."""
        return [entry["loc"] for entry in self.json["detail"]]


def strict(body: bytes) -> Any:
    """Read JSON as RFC 8259 has it: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(body.decode("utf-8"), parse_constant=refuse)


@dataclass(frozen=True)
class Stage:
    """An account with findings and runs, asked in bytes that no HTTP library has put in order."""

    backend: Backend
    tenant: Tenant
    id: str
    scan_id: str
    before: list[list[tuple[Any, ...]]] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.backend.base_url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    def rows(self) -> list[list[tuple[Any, ...]]]:
        queries = [
            "SELECT f::text FROM findings f WHERE account_id = %s ORDER BY id",
            "SELECT s::text FROM scans s WHERE account_id = %s ORDER BY id",
            "SELECT a::text FROM audit a WHERE account_id = %s ORDER BY id",
            "SELECT o::text FROM outbox o WHERE account_id = %s ORDER BY id",
        ]
        return [self.backend.sql(query, self.tenant.account.id) for query in queries]

    def ask(
        self, method: str, target: str, headers: dict[str, str] | None = None, body: Any = None, **how: Any
    ) -> Answer:
        """Send the target unchanged, by default with the account's key."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        began = time.monotonic()
        try:
            all_headers = {"Authorization": f"Bearer {self.tenant.key}"} | (headers or {})
            connection.request(method, target, body=body, headers=all_headers, **how)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        seconds = time.monotonic() - began
        return checked(
            Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, content, seconds),
            method,
        )

    def get(self, path_and_query: str) -> Answer:
        return self.ask("GET", f"/api/v1{path_and_query}")

    def post(self, path_and_query: str) -> Answer:
        return self.ask("POST", f"/api/v1{path_and_query}")

    def send(self, raw: bytes) -> Answer:
        """Write bytes to a socket and read one answer."""
        began = time.monotonic()
        with socket.create_connection(self.address, timeout=60) as sock:
            sock.sendall(raw)
            response = http.client.HTTPResponse(sock, method=raw.split(b" ", 1)[0].decode("latin-1"))
            response.begin()
            content = response.read()
            headers = {n.lower(): v for n, v in response.getheaders()}
        return checked(Answer(response.status, headers, content, time.monotonic() - began), "GET")


def checked(answer: Answer, method: str) -> Answer:
    """Assert what holds for every answer, and return the answer."""
    assert answer.status < 500
    assert answer.seconds < SECONDS
    assert answer.headers["content-type"] == "application/json"
    if method != "HEAD":
        assert isinstance(answer.json, dict)
    return answer


@pytest.fixture(scope="module")
def made(settings: Settings, keys: Keyring, server: Server) -> Iterator[Stage]:
    with Backend(settings, keys, server.base_url) as backend:
        tenant = backend.tenant()
        line, other = make_line(), make_line(status="stale")
        backend.import_(tenant.account, line, other)
        backend.scan(tenant.account, run := make_scan())
        stage = Stage(backend, tenant, line["id"], str(run.id))
        stage.before.extend(stage.rows())
        yield stage


@pytest.fixture
def stage(made: Stage) -> Iterator[Stage]:
    """For requests that must not change anything."""
    yield made
    assert made.rows() == made.before


def only(answer: Answer, status: int, *loc: str | int) -> None:
    assert answer.status == status
    if loc:
        assert answer.wrong == [list(loc)]


# --- NUL and bad UTF-8

BAD_BYTES = [
    "%00",
    "a%00b",
    "%FF",
    "%C3",
    "%C0%80",
    "%ED%A0%80",
    "%F8%88%80%80%80",
    "%F4%90%80%80",
    "ok%E2%82",
]


@pytest.mark.parametrize("bad", BAD_BYTES)
def test_nul_and_bad_utf8_in_any_parameter_is_a_parameter_error(stage: Stage, bad: str) -> None:
    for name in LIST:
        only(stage.get(f"/findings?{name}={bad}"), 422, "query", name)
        only(
            stage.get(
                f"/findings?per_page=3&{name}={bad}&x=1" if name != "per_page" else f"/findings?{name}={bad}"
            ),
            422,
            "query",
            name,
        )
    for name in SCANS:
        only(stage.get(f"/scans?{name}={bad}"), 422, "query", name)
    for action in CLOSING:
        only(stage.post(f"/findings/{stage.id}/{action}?note={bad}"), 422, "query", "note")


@pytest.mark.parametrize("bad", BAD_BYTES)
def test_nul_and_bad_utf8_in_a_finding_id_is_a_parameter_error(stage: Stage, bad: str) -> None:
    for id_ in (bad, stage.id + bad, stage.id[:-1] + bad):
        only(stage.get(f"/findings/{id_}"), 422, "path", "finding_id")
        for action in (*CLOSING, "suppress"):
            only(stage.post(f"/findings/{id_}/{action}"), 422, "path", "finding_id")


@pytest.mark.parametrize("bad", BAD_BYTES)
def test_nul_and_bad_utf8_in_a_scan_id_is_not_found(stage: Stage, bad: str) -> None:
    for id_ in (bad, stage.scan_id + bad, stage.scan_id[:-1] + bad):
        assert stage.get(f"/scans/{id_}").json["error"] == "not_found"


@pytest.mark.parametrize("bad", BAD_BYTES)
def test_bad_bytes_elsewhere_in_the_path_are_not_found(stage: Stage, bad: str) -> None:
    for path in (
        f"/{bad}",
        f"/findings/{stage.id}/{bad}",
        f"/findings/{stage.id}/resolve{bad}",
        f"/find{bad}ings",
    ):
        assert stage.post(path).status == 404


@pytest.mark.parametrize("bad", BAD_BYTES)
def test_bad_bytes_in_a_parameter_that_is_not_known_are_ignored(stage: Stage, bad: str) -> None:
    assert stage.get(f"/findings?unheard={bad}&{bad}=1&{bad}").json == stage.get("/findings").json


@pytest.mark.parametrize(
    "target",
    ["/findings?q=%", "/findings?q=%zz", "/findings?q=%u0041", "/findings?service=%4", "/findings?q=%25%"],
)
def test_a_broken_percent_escape_is_plain_text(stage: Stage, target: str) -> None:
    assert stage.get(target).json["meta"]["total"] == 0


def test_bytes_that_no_url_may_hold_are_answered_all_the_same(stage: Stage) -> None:
    key = stage.tenant.key.encode()
    for raw in (b"\xff", b"\xc3\xa9", b"\x80"):
        head = b"HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + b"\r\nConnection: close\r\n\r\n"
        in_query = stage.send(b"GET /api/v1/findings?status=" + raw + b" " + head)
        assert in_query.status in {400, 422}
        assert stage.send(b"GET /api/v1/findings/" + raw + b" " + head).status in {400, 422}
        assert stage.send(b"GET /api/v1/scans/" + raw + b" " + head).status in {400, 404}


# --- numbers


@pytest.mark.parametrize("page", [10**9, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, 10**900])
@pytest.mark.parametrize(
    "filters", ["", "&q=settings", "&service=aws", "&min_score=1", "&date_from=2026-01-01&min_score=1"]
)
def test_a_page_of_any_size_is_empty(stage: Stage, page: int, filters: str) -> None:
    for per_page in (1, 25, 200):
        answer = stage.get(f"/findings?page={page}&per_page={per_page}{filters}")
        assert answer.status == 200
        assert answer.json["data"] == []
        assert answer.json["meta"] == {
            "total": 2,
            "page": page,
            "per_page": per_page,
            "pages": -(-2 // per_page),
        }


@pytest.mark.parametrize("page", [2**63, 10**30])
@pytest.mark.parametrize("path", ["/findings?updated_since=2026-01-01", "/incidents?status=open"])
def test_a_page_of_any_size_is_empty_in_extensions_too(stage: Stage, path: str, page: int) -> None:
    answer = stage.get(f"{path}&page={page}")
    assert (answer.status, answer.json["data"], answer.json["meta"]["page"]) == (200, [], page)


@pytest.mark.parametrize("page", [2**31, 2**63, 10**30])
def test_a_page_of_scan_runs_of_any_size_is_empty(stage: Stage, page: int) -> None:
    answer = stage.get(f"/scans?page={page}&limit=100")
    assert answer.json == {"data": [], "meta": {"total": 1, "page": page, "per_page": 100, "pages": 1}}


@pytest.mark.parametrize("path", ["/findings?page=", "/findings?q=settings&page=", "/scans?page="])
@pytest.mark.parametrize("digits", [1000, 1001, 4300])
def test_a_page_of_thousands_of_digits_is_empty_and_reported_to_the_last_one(
    stage: Stage, path: str, digits: int
) -> None:
    number = "1" + "2" * (digits - 2) + "3"
    answer = stage.get(path + number)
    assert answer.status == 200
    assert answer.json["data"] == []
    assert answer.json["meta"]["pages"] == 1
    assert answer.json["meta"]["page"] == int(number)


@pytest.mark.parametrize("path", ["/findings?page=", "/findings?q=settings&page=", "/scans?page="])
@pytest.mark.parametrize("digits", [4301, 5000, 60_000])
def test_a_page_of_more_digits_than_a_reader_of_the_answer_takes_is_empty_and_the_largest(
    stage: Stage, path: str, digits: int
) -> None:
    answer = stage.get(path + "1" * digits)
    assert answer.status == 200
    assert (answer.json["data"], answer.json["meta"]["page"]) == ([], 10**4300 - 1)


@pytest.mark.parametrize("zeros", [1, 100, 999, 1000, 5000])
def test_zeros_in_front_of_a_number_change_nothing(stage: Stage, zeros: int) -> None:
    for target in (
        "/findings?page={}1",
        "/findings?per_page={}25",
        "/scans?limit={}20",
        "/findings?min_score={}1",
    ):
        plain = stage.get(target.format(""))
        assert plain.status == 200
        answer = stage.get(target.format("0" * zeros))
        assert (answer.status, answer.body) == (200, plain.body), target


@pytest.mark.parametrize("value", ["-" + "9" * 5000, "-0", "-1", "0", "00"])
def test_a_page_below_one_is_a_parameter_error(stage: Stage, value: str) -> None:
    only(stage.get(f"/findings?page={value}"), 422, "query", "page")
    only(stage.get(f"/scans?page={value}"), 422, "query", "page")


@pytest.mark.parametrize("value", ["9" * 5000, "1" + "0" * 30, "201", "0", "-1", "-" + "9" * 30])
def test_per_page_and_limit_out_of_bounds_are_parameter_errors(stage: Stage, value: str) -> None:
    only(stage.get(f"/findings?per_page={value}"), 422, "query", "per_page")
    only(stage.get(f"/scans?limit={value}"), 422, "query", "limit")


NO_INTEGERS = [
    "1.0",
    "1e3",
    "0x10",
    "%2B1",
    "+1",
    "1+",
    "%201",
    "1%20",
    "1%0A",
    "1_0",
    "%EF%BC%91",
    "%D9%A1",
    "%C2%B2",
    "one",
    "true",
    "1,0",
]
NO_INTEGERS += ["[1]", "nan", "null", "''", "1;2", "--1", "-"]


@pytest.mark.parametrize("value", NO_INTEGERS)
def test_what_is_no_integer_is_a_parameter_error(stage: Stage, value: str) -> None:
    for target, name in (
        ("/findings", "page"),
        ("/findings", "per_page"),
        ("/scans", "limit"),
        ("/scans", "page"),
    ):
        only(stage.get(f"{target}?{name}={value}"), 422, "query", name)


NO_SCORES = [
    "nan",
    "NaN",
    "inf",
    "-inf",
    "Infinity",
    "1e400",
    "1e99999",
    "-1e400",
    "-1e-5",
    "100.00001",
    "1e3",
    "101",
    "0x1p3",
    "1_0",
    ".5",
]
NO_SCORES += [
    "5.",
    "%2B5",
    "5%20",
    "%205",
    "5%0A",
    "%EF%BC%95",
    "%D9%A5",
    "5,5",
    "five",
    "true",
    "1e",
    "e1",
    "--5",
    "9" * 5000,
]
# What is no more than a float's last bit, or less than any, away from a bound.
NO_SCORES += [
    "100.0000000000000001",
    "100." + "0" * 5000 + "1",
    "1.000000000000000000001e2",
    "-1e-400",
    "-0." + "0" * 5000 + "1",
]
NO_SCORES += [
    "1e99999999999999999999",
    "-1e-99999999999999999999",
    "1e-99999999999999999999",
    "",
    "%20",
    "%E2%88%925",
    "1e2&min_score=1e2",
]


@pytest.mark.parametrize("value", NO_SCORES)
def test_a_score_that_is_no_number_from_0_to_100_is_a_parameter_error(stage: Stage, value: str) -> None:
    only(stage.get(f"/findings?min_score={value}"), 422, "query", "min_score")


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "-0",
        "-0.0",
        "-0e0",
        "0.0",
        "1e-400",
        "72.5",
        "72.50",
        "7.25e1",
        "7.25E1",
        "7.25e%2B1",
        "007.25e01",
        "0e400",
    ],
)
def test_a_score_is_read_as_a_number(stage: Stage, value: str) -> None:
    assert stage.get(f"/findings?min_score={value}").json["meta"]["total"] == 2


@pytest.mark.parametrize(
    "value",
    [
        "72.50000000000001",
        "72.5000000000000000000001",
        "73",
        "1e2",
        "100.000",
        "1" + "0" * 5002 + "e-5000",
        "0." + "0" * 5000 + "1",
    ],
)
def test_a_score_is_a_bound_to_the_last_digit(stage: Stage, value: str) -> None:
    assert stage.get(f"/findings?min_score={value}").json["meta"]["total"] == (
        2 if value.startswith("0.0") else 0
    )


@pytest.mark.parametrize("value", ["True", "1", "0", "yes", "on", "null", "TRUE", "%20true"])
def test_what_is_neither_true_nor_false_is_a_parameter_error(stage: Stage, value: str) -> None:
    only(stage.get(f"/findings?suppressed={value}"), 422, "query", "suppressed")


# --- dates

NO_DATES = [
    "20240101",
    "1700000000",
    "1700000000000",
    "1.7e9",
    "0",
    "-1",
    "2024",
    "2024-02",
    "2024-02-30",
    "2023-02-29",
    "2024-13-01",
]
NO_DATES += [
    "2024-00-01",
    "2024-01-00",
    "0000-01-01",
    "0000-00-00",
    "10000-01-01",
    "-2024-01-01",
    "2024-1-1",
    "2024-001",
    "2024-W01",
]
NO_DATES += [
    "2024-W01-1",
    "24-01-01",
    "2024/01/01",
    "01.01.2024",
    "2024-01-01T",
    "2024-01-01T24:00:00",
    "2024-01-01T25:00:00",
]
NO_DATES += [
    "2024-01-01T00:60:00",
    "2024-01-01T00:00:61",
    "2024-01-01T00",
    "2024-01-01T0000",
    "2024-01-01T00:00:00.",
    "2024-01-01T1:00:00Z",
]
NO_DATES += [
    "2024-01-01T00:00:00%2B24:00",
    "2024-01-01T00:00:00%2B99:99",
    "2024-01-01T00:00:00%2B00:60",
    "2024-01-01T00:00:00%2B0000",
]
NO_DATES += [
    "2024-01-01T00:00:00%2B00",
    "2024-01-01T00:00:00ZZ",
    "2024-01-01T00:00:00Z%0A",
    "2024-01-01%0A",
    "%202024-01-01",
    "2024-01-01%20",
]
NO_DATES += [
    "2024-01-01T00:00:00,5Z",
    "%D9%A2%D9%A0%D9%A2%D9%A4-01-01",
    "now",
    "today",
    "infinity",
    "-infinity",
    "epoch",
    "null",
    "P1D",
]
NO_DATES += [
    "0000-12-31T23:59:59-14:00",
    "2024-01-01;2024-01-02",
    "2024-01-01T00:00:00%E2%88%9201:00",
    "2024-01-01T00:00:00 UTC".replace(" ", "%20"),
]


@pytest.mark.parametrize("value", NO_DATES)
def test_what_is_no_date_is_a_parameter_error(stage: Stage, value: str) -> None:
    for name in ("date_from", "date_to"):
        only(stage.get(f"/findings?{name}={value}"), 422, "query", name)


# The two findings were first seen at 2026-01-02T03:04:05Z.
@pytest.mark.parametrize(
    ("value", "from_it", "to_it"),
    [
        ("0001-01-01", 2, 0),
        ("9999-12-31", 0, 2),
        ("0001-01-01T00:00:00Z", 2, 0),
        ("9999-12-31T23:59:59Z", 0, 2),
        ("9999-12-31T23:59:59.999999Z", 0, 2),
        ("2026-01-02", 2, 2),
        ("2026-01-01", 2, 0),
        ("2026-01-03", 0, 2),
        ("2024-02-29", 2, 0),
        ("2026-01-02T03:04:05Z", 2, 2),
        ("2026-01-02t03:04:05z", 2, 2),
        ("2026-01-02T03:04:05", 2, 2),
        ("2026-01-02%2003:04:05", 2, 2),
        ("2026-01-02+03:04:05", 2, 2),
        ("2026-01-02T03:04", 2, 0),
        ("2026-01-02T03:05Z", 0, 2),
        ("2026-01-02T03:04:05.000000000Z", 2, 2),
        ("2026-01-02T03:04:05.000000001Z", 0, 2),
        ("2026-01-02T03:04:05.5Z", 0, 2),
        ("2026-01-02T03:04:04.999999999Z", 2, 0),
        ("2026-01-02T05:04:05%2B02:00", 2, 2),
        ("2026-01-02T05:04:05+02:00", 2, 2),
        ("2026-01-01T22:04:05-05:00", 2, 2),
        ("2026-01-02T03:04:05-00:00", 2, 2),
        ("2026-01-02T17:04:05%2B14:00", 2, 2),
        ("2026-01-02T17:04:06%2B14:00", 0, 2),
    ],
)
@pytest.mark.parametrize("filters", ["", "&q=settings", "&min_score=1", "&service=aws"])
def test_a_date_bounds_to_the_second(
    stage: Stage, value: str, from_it: int, to_it: int, filters: str
) -> None:
    assert stage.get(f"/findings?date_from={value}{filters}").json["meta"]["total"] == from_it
    assert stage.get(f"/findings?date_to={value}{filters}").json["meta"]["total"] == to_it


@pytest.mark.parametrize(
    "value", ["0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "2016-12-31T23:59:60Z"]
)
def test_a_moment_beyond_the_calendar_is_an_answer_too(stage: Stage, value: str) -> None:
    for name in ("date_from", "date_to"):
        assert stage.get(f"/findings?{name}={value}").status in {200, 422}


# --- empty, doubled, unknown, long


@pytest.mark.parametrize("form", ["{}=", "{}"])
def test_an_empty_value_is_a_parameter_error_but_for_texts(stage: Stage, form: str) -> None:
    complete = stage.get("/findings").json
    for name in LIST:
        answer = stage.get(f"/findings?{form.format(name)}")
        if name in {"q", "service"}:
            assert answer.json == complete
        else:
            only(answer, 422, "query", name)
    for name in SCANS:
        only(stage.get(f"/scans?{form.format(name)}"), 422, "query", name)


@pytest.mark.parametrize("blank", ["+", "%20", "%09%0A", "%E3%80%80"])
def test_a_q_of_white_space_only_has_no_terms(stage: Stage, blank: str) -> None:
    assert stage.get(f"/findings?q={blank}").json == stage.get("/findings").json


@pytest.mark.parametrize(
    "form",
    [
        "{n}={v}&{n}={v}",
        "{n}={v}&x=1&{n}={v}",
        "{n}=&{n}={v}",
        "{n}={v}&{n}=",
        "{n}={v}&{n}",
        "{n}&{n}",
        "{n}={v}&{e}={v}",
    ],
)
def test_a_parameter_twice_is_a_parameter_error(stage: Stage, form: str) -> None:
    def doubled(name: str, value: str) -> str:
        return form.format(n=name, v=value, e=f"%{ord(name[0]):02X}{name[1:]}")

    for path, names in (("/findings", LIST), ("/scans", SCANS)):
        for name in names:
            answer = stage.get(f"{path}?{doubled(name, GOOD[name])}")
            assert answer.status == 422, name
            assert ["query", name] in answer.wrong
    for action in CLOSING:
        answer = stage.post(f"/findings/{stage.id}/{action}?{doubled('note', 'a')}")
        assert answer.status == 422
        assert ["query", "note"] in answer.wrong


@pytest.mark.parametrize(
    "query",
    [
        "&",
        "&&",
        "=",
        "=1",
        "&=&",
        "x=1&x=2",
        "%3D=1",
        "q%00=1",
        "Q=1",
        "status%20=x",
        "filter[status]=x",
        "?status=x",
    ],
)
def test_an_unknown_parameter_is_ignored(stage: Stage, query: str) -> None:
    assert stage.get(f"/findings?{query}").json == stage.get("/findings").json


def test_sixty_kilobytes_of_a_parameter_are_answered(stage: Stage) -> None:
    long = "x" * 60_000
    for name in LIST:
        answer = stage.get(f"/findings?{name}={long}")
        if name == "service":
            assert answer.json["data"] == []
        else:
            only(answer, 422, "query", name)
            assert len(answer.body) < 1000  # what was sent is not sent back
    assert stage.get(f"/findings?unheard={long}").status == 200
    assert stage.get(f"/findings/{long}").status == 422
    assert stage.get(f"/scans/{long}").status == 404
    only(stage.post(f"/findings/{stage.id}/resolve?note={long}"), 422, "query", "note")


def test_a_q_may_have_a_thousand_code_points_and_sixteen_terms(stage: Stage) -> None:
    for text, status in [("x" * 1000, 200), ("x" * 1001, 422), ("😀" * 1000, 200), ("😀" * 1001, 422)]:
        assert stage.get(f"/findings?q={quote(text)}").status == status
    assert stage.get(f"/findings?q={'settings+' * 15}acme").json["meta"]["total"] == 2
    assert stage.get(f"/findings?q={'a+' * 15}nowhere").json["meta"]["total"] == 0
    only(stage.get(f"/findings?q={'a+' * 16}a"), 422, "query", "q")


def test_thousands_of_parameters_are_answered(stage: Stage) -> None:
    assert stage.get("/findings?" + "&".join(f"p{n}=1" for n in range(5000))).status == 200
    assert stage.get("/findings?" + "&".join("q=1" for _ in range(5000))).status == 422


def test_an_address_of_more_than_64_kilobytes_is_a_bad_request(stage: Stage) -> None:
    answer = stage.get("/findings?q=" + "x" * 70_000)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


# --- signs that mean something to someone

SIGNS = [
    "%",
    "_",
    "\\",
    "'",
    '"',
    "''",
    "\\'",
    "%s",
    "%%",
    "{}",
    "$1",
    "*",
    "?",
    ";--",
    "' OR 1=1 --",
    "\\\\",
    "<b>",
    "\u2028",
    "|",
    "(",
    "[",
]


@pytest.fixture(scope="module")
def signs(settings: Settings, keys: Keyring, server: Server) -> Iterator[Stage]:
    """One finding for each sign, in path and service, beside one with neither."""
    with Backend(settings, keys, server.base_url) as backend:
        tenant = backend.tenant()
        plain = make_line(
            file_path="plain",
            source_url=None,
            repo_full_name=None,
            validation_detail={"enabled_services": ["plain"]},
        )
        lines = [
            plain
            | make_line(
                file_path=f"a{sign}z",
                source_url=None,
                repo_full_name=None,
                validation_detail={"enabled_services": [f"a{sign}z"]},
            )
            for sign in SIGNS
        ]
        backend.import_(tenant.account, plain, *lines)
        yield Stage(backend, tenant, lines[0]["id"], "")


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_in_q_is_a_plain_character(signs: Stage, sign: str) -> None:
    listed = signs.get(f"/findings?per_page=200&q={quote(sign, safe='')}").json
    terms = sign.casefold().split()
    expected = sorted(
        f"a{other}z" for other in SIGNS if all(term in f"a{other}z".casefold() for term in terms)
    )
    expected += ["plain"] if all(term in "plain" for term in terms) else []
    assert sorted(finding["file_path"] for finding in listed["data"]) == sorted(expected)
    assert listed["meta"]["total"] == len(expected)


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_in_service_is_a_plain_character(signs: Stage, sign: str) -> None:
    listed = signs.get(f"/findings?service={quote(f'a{sign}z', safe='')}").json
    assert [finding["file_path"] for finding in listed["data"]] == [f"a{sign}z"]
    assert listed["meta"]["total"] == 1
    assert signs.get(f"/findings?service={quote(sign, safe='')}").json["meta"]["total"] == 0


# --- bodies


@pytest.fixture
def fresh(made: Stage) -> Stage:
    """Create an account with one finding, for requests that change the finding."""
    tenant = made.backend.tenant()
    made.backend.import_(tenant.account, line := make_line())
    return Stage(made.backend, tenant, line["id"], "")


BODIES: dict[str, tuple[dict[str, str], Any]] = {
    "json": ({"Content-Type": "application/json"}, b'{"note": "from the body", "status": "active"}'),
    "garbage": ({"Content-Type": "application/json"}, b"\xff\x00{{{"),
    "a form": ({"Content-Type": "application/x-www-form-urlencoded"}, b"note=from+the+body"),
    "a wrong type": ({"Content-Type": "no/such; type=?"}, b"x"),
    "xml": ({"Content-Type": "text/xml"}, b"<!DOCTYPE x [<!ENTITY y SYSTEM 'file:///x'>]><x>&y;</x>"),
    "a megabyte": ({"Content-Type": "application/octet-stream"}, b"\0" * 1_000_000),
    "gzip that is none": ({"Content-Encoding": "gzip"}, b"not gzip"),
    "an empty one": ({"Content-Type": "application/json"}, b""),
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("action", [*CLOSING, "suppress"])
def test_a_body_is_ignored(fresh: Stage, kind: str, action: str) -> None:
    headers, body = BODIES[kind]
    answer = fresh.ask("POST", f"/api/v1/findings/{fresh.id}/{action}", headers, body)
    assert answer.status == 200
    assert answer.json["data"]["id"] == fresh.id
    assert fresh.tenant.finding(fresh.id)["resolution_note"] is None


@pytest.mark.parametrize("action", [*CLOSING, "suppress"])
def test_a_chunked_body_is_ignored(fresh: Stage, action: str) -> None:
    chunks = iter([b'{"note": ', b'"from the body"}'])
    answer = fresh.ask(
        "POST",
        f"/api/v1/findings/{fresh.id}/{action}?note=asked",
        {"Transfer-Encoding": "chunked"},
        chunks,
        encode_chunked=True,
    )
    assert answer.status == 200
    assert fresh.tenant.finding(fresh.id)["resolution_note"] == (None if action == "suppress" else "asked")


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_of_a_get_is_ignored(stage: Stage, kind: str) -> None:
    headers, body = BODIES[kind]
    for path in ("/findings", f"/findings/{stage.id}", "/scans", f"/scans/{stage.scan_id}"):
        assert stage.ask("GET", f"/api/v1{path}", headers, body).json == stage.get(path).json


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_saves_no_refused_request(stage: Stage, kind: str) -> None:
    headers, body = BODIES[kind]
    assert (
        stage.ask(
            "POST", f"/api/v1/findings/{stage.id}/resolve", headers | {"Authorization": "Bearer x"}, body
        ).status
        == 401
    )
    assert stage.ask("POST", "/api/v1/findings/1/resolve", headers, body).status == 422
    assert stage.ask("POST", "/api/v1/findings", headers, body).status == 405


def test_a_client_that_expects_100_continue_is_answered(fresh: Stage) -> None:
    raw = (
        f"POST /api/v1/findings/{fresh.id}/resolve HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {fresh.tenant.key}\r\n"
    )
    raw += "Expect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
    assert fresh.send(raw.encode()).json == {"data": {"id": fresh.id, "status": "resolved"}}


# --- methods


@pytest.mark.parametrize(
    "method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "MKCOL", "LOCK", "PURGE", "SEARCH"]
)
def test_a_wrong_method_changes_nothing(stage: Stage, method: str) -> None:
    for path in (
        "/findings",
        f"/findings/{stage.id}",
        f"/findings/{stage.id}/resolve",
        "/scans",
        f"/scans/{stage.scan_id}",
    ):
        answer = stage.ask(method, f"/api/v1{path}?note=x")
        assert (answer.status, answer.json["error"]) == (405, "method_not_allowed")
        assert answer.headers["allow"]


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_a_method_cannot_be_overridden(stage: Stage, name: str) -> None:
    assert stage.ask("GET", f"/api/v1/findings/{stage.id}/resolve", {name: "POST"}).status == 405
    assert stage.ask("GET", f"/api/v1/findings/{stage.id}/resolve?_method=POST").status == 405


# --- the Authorization header

BAD_HEADERS = [
    b"Bearer \xff\xfe",
    b"Bearer \xc3\xa9",
    b"\xff",
    b"Bearer {key}\xff",
    b"Bearer \xa0{key}",
    b"Bearer\t{key}",
    b"Bearer",
    b"Bearer ",
    b" ",
    b"",
    b"Bearer " + b"a" * 60_000,
    b"a" * 60_000,
    b"Bearer {key}" + b"a" * 60_000,
    b"Bearer {key}, Bearer {key}",
    b"Bearer %00",
    b"Bearer outcrop_" + b"0" * 49,
    b"Bearer 'OR 1=1",
]


def head_with(*values: bytes, target: bytes = b"/api/v1/findings", method: bytes = b"GET") -> bytes:
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: x", b"Connection: close"]
    return b"\r\n".join([*lines, *(b"Authorization: " + value for value in values), b"", b""])


@pytest.mark.parametrize(
    "value", BAD_HEADERS, ids=[repr(value[:24]) + f" of {len(value)}" for value in BAD_HEADERS]
)
def test_any_authorization_that_is_no_key_is_an_invalid_token(stage: Stage, value: bytes) -> None:
    value = value.replace(b"{key}", stage.tenant.key.encode())
    target = f"/api/v1/findings/{stage.id}/resolve".encode()
    answer = stage.send(head_with(value, target=target, method=b"POST"))
    assert (answer.status, answer.body) == (401, b'{"error":"invalid_token"}')
    assert answer.headers["www-authenticate"] == "Bearer"


def test_two_authorization_headers_are_no_key(stage: Stage) -> None:
    key = b"Bearer " + stage.tenant.key.encode()
    for values in ((key, key), (key, b"Bearer x"), (b"Basic x", key), (key, b"")):
        answer = stage.send(head_with(*values))
        assert (answer.status, answer.json) == (401, {"error": "invalid_token"})
    assert stage.send(head_with(key)).status == 200


def test_spaces_around_a_key_do_no_harm(stage: Stage) -> None:
    assert stage.send(head_with(b"Bearer   " + stage.tenant.key.encode() + b"  ")).status == 200


# --- what is no HTTP at all

GARBAGE = {
    "a word": b"GARBAGE\r\n\r\n",
    "one letter": b"x\r\n\r\n",
    "a method only": b"GET\r\n\r\n",
    "another version": b"GET /api/v1/findings HTTP/9.9\r\n\r\n",
    "an unknown method": b"FROB /api/v1/findings HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method in lower case": b"get /api/v1/findings HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "binary": bytes(random.Random(7).randbytes(200)) + b"\r\n\r\n",
    "a space in the path": b"GET /api/v1/find ings HTTP/1.1\r\nHost: x\r\n\r\n",
    "no path": b"GET  HTTP/1.1\r\nHost: x\r\n\r\n",
    "a header without a colon": b"GET /api/v1/findings HTTP/1.1\r\nHost x\r\n\r\n",
    "a space before the colon": b"GET /api/v1/findings HTTP/1.1\r\nHost : x\r\n\r\n",
    "NUL in a header": b"GET /api/v1/findings HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "a length that is no number": b"POST /api/v1/findings HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
    "a negative length": b"POST /api/v1/findings HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a length past 64 bits": (
        b"POST /api/v1/findings HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n"
    ),
    "two lengths": (
        b"POST /api/v1/findings HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"
    ),
    "a length and chunks": (
        b"POST /api/v1/findings HTTP/1.1\r\nHost: x\r\n"
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "a proxy's CONNECT": b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_request_that_cannot_be_parsed_is_a_bad_request(stage: Stage, kind: str) -> None:
    # "400: bad input" - `bad_request` only for a request that cannot be parsed
    answer = stage.send(GARBAGE[kind])
    assert answer.status == 400
    assert answer.json.keys() == {"error", "message"}
    assert answer.json["error"] == "bad_request"


@pytest.mark.parametrize(
    "chunk",
    [b"zz\r\nnote\r\n0\r\n\r\n", b"-1\r\n\r\n", b"ffffffffffffffffff\r\nx", b"4\r\nnote0\r\n\r\n"],
    ids=repr,
)
def test_where_a_body_that_cannot_be_parsed_is_refused_nothing_is_changed(fresh: Stage, chunk: bytes) -> None:
    head = (
        f"POST /api/v1/findings/{fresh.id}/resolve HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {fresh.tenant.key}\r\n"
    )
    before = fresh.rows()
    answer = fresh.send(head.encode() + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunk)
    assert answer.status in {200, 400}  # ignored like any other body, or refused
    time.sleep(0.2)  # an admitted request goes on after its connection is closed
    assert ("unchanged" if fresh.rows() == before else "changed") == {200: "changed", 400: "unchanged"}[
        answer.status
    ]


def test_a_connection_that_is_closed_in_the_middle_harms_nobody(stage: Stage) -> None:
    for raw in (
        b"",
        b"G",
        b"GET /api/v1/findings HT",
        head_with(b"Bearer " + stage.tenant.key.encode())[:-2],
    ):
        for _ in range(5):
            with socket.create_connection(stage.address, timeout=60) as sock:
                sock.sendall(raw)
    assert stage.get("/findings").status == 200


def test_two_requests_in_one_packet_get_two_answers(stage: Stage) -> None:
    key = b"Bearer " + stage.tenant.key.encode()
    first = head_with(key, target=b"/api/v1/findings?page=0").replace(b"Connection: close\r\n", b"")
    received = b""
    with socket.create_connection(stage.address, timeout=60) as sock:
        sock.sendall(first + head_with(key, target=b"/api/v1/findings?page=2"))
        while part := sock.recv(65_536):
            received += part
    assert received.count(b"HTTP/1.1 ") == 2
    assert received.index(b"HTTP/1.1 422") < received.index(b"HTTP/1.1 200")


@pytest.mark.parametrize("upgrade", ["websocket", "h2c", "nonsense"])
def test_a_wish_for_another_protocol_is_answered_in_this_one(stage: Stage, upgrade: str) -> None:
    answer = stage.ask(
        "GET", "/api/v1/findings", {"Connection": "Upgrade", "Upgrade": upgrade, "Sec-WebSocket-Key": "AAAA"}
    )
    assert answer.json == stage.get("/findings").json


def test_hundreds_of_headers_are_answered(stage: Stage) -> None:
    extra = b"".join(b"X-%d: %s\r\n" % (n, b"v" * 100) for n in range(500))
    raw = head_with(b"Bearer " + stage.tenant.key.encode()).replace(b"Host: x\r\n", b"Host: x\r\n" + extra)
    assert stage.send(raw).status in {200, 400, 431}


# --- work that a request must not be able to make


def test_a_note_on_a_finding_with_a_long_credential_is_answered_at_once(fresh: Stage) -> None:
    # The note is searched for the credential, also in its URL-encoded form.
    # The time that this takes must not grow with the length of the credential.
    line = make_line(
        secret="".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=65_536)),
        file_path="long",
    )
    fresh.backend.import_(fresh.tenant.account, line)
    assert fresh.post(f"/findings/{line['id']}/resolve?note=100%25+done").status == 200


@pytest.mark.parametrize("q", ["a", "%25", "a+b+c+d+e+f+g+h", "(a*)*b", "_" * 1000, "%25" * 900, "%5C" * 999])
def test_a_hard_q_is_answered_at_once(stage: Stage, q: str) -> None:
    assert stage.get(f"/findings?q={q}").status == 200
