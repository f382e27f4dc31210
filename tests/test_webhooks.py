"""The library for receivers: accepted and rejected requests, and the same signature from openssl."""

import base64
import hmac
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from outcrop.domain.events import FIELDS, EventType
from outcrop.webhooks import VerificationError, sign, verify
from tests.support.calls import before_call

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/webhooks.md").read_text()
SECRET = "0123456789abcdef" * 4
NOW = 1_790_000_000
PLANES = "".join(
    chr(plane * 0x10000 + at) for plane in range(17) for at in (0x41, 0x2603, 0xFFFD) if plane or at != 0x41
)


def body(**given: Any) -> bytes:
    event = {
        "event": "finding.new",
        "delivered_at": datetime.fromtimestamp(NOW, UTC).isoformat(),
        "client_slug": "acme",
        "finding": {"id": "x"},
    } | given
    return json.dumps(event, ensure_ascii=False).encode()


def signed(raw: bytes, secret: str = SECRET, at: int = NOW) -> dict[str, str]:
    return sign(raw, secret, id_="6f1f2c1e-6d0b-4c54-9d0a-0d8b9f8f6f11", timestamp=at)


BODIES = {
    "every plane of Unicode": body(finding={"file_path": PLANES}),
    "escapes": json.dumps(
        {"delivered_at": datetime.fromtimestamp(NOW, UTC).isoformat(), "finding": {"file_path": PLANES}}
    ).encode(),
    "control characters": body(finding={"file_path": "".join(map(chr, range(32)))}),
    "large": body(finding={"file_path": "é" * 100_000}),
    "Z": body(delivered_at=datetime.fromtimestamp(NOW, UTC).isoformat().replace("+00:00", "Z")),
}


@pytest.mark.parametrize("name", BODIES)
def test_openssl_makes_the_same_signatures(name: str) -> None:
    raw, headers = BODIES[name], signed(BODIES[name])
    assert headers["X-Service-Signature"] == f"sha256={_openssl(raw, '-hmac', SECRET)}"
    key = base64.b64decode(SECRET).hex()
    message = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + raw
    mac = bytes.fromhex(_openssl(message, "-mac", "HMAC", "-macopt", f"hexkey:{key}"))
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
    assert verify(raw, headers, SECRET, now=NOW) == json.loads(raw)


def _openssl(message: bytes, *options: str) -> str:
    ran = subprocess.run(
        ["openssl", "dgst", "-sha256", *options, "-r"], input=message, capture_output=True, check=True
    )
    return ran.stdout.split()[0].decode()


def test_one_signature_is_enough_and_names_of_headers_are_the_same_in_capitals() -> None:
    raw = body()
    headers = signed(raw)
    verify(raw, {"x-SERVICE-signature": headers["X-Service-Signature"]}, SECRET, now=NOW)
    standard = {name.upper(): value for name, value in headers.items() if name.startswith("webhook-")}
    verify(raw, standard, SECRET, now=NOW)
    rotated = standard | {"WEBHOOK-SIGNATURE": f"v1,{'A' * 44} v2,x {headers['webhook-signature']}"}
    verify(raw, rotated, SECRET, now=NOW)


def _without(headers: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in names}


RAW = body()
GOOD = signed(RAW)
REFUSED: dict[str, tuple[bytes, Mapping[str, str], str, str]] = {
    "no signature": (RAW, {}, SECRET, "no X-Service-Signature"),
    "another secret": (RAW, GOOD, "f" * 64, "X-Service-Signature does not match"),
    "another body": (RAW + b" ", GOOD, SECRET, "X-Service-Signature does not match"),
    "another scheme": (
        RAW,
        GOOD | {"X-Service-Signature": GOOD["X-Service-Signature"][7:]},
        SECRET,
        "does not begin with sha256=",
    ),
    "cut short": (
        RAW,
        GOOD | {"X-Service-Signature": GOOD["X-Service-Signature"][:-1]},
        SECRET,
        "does not match",
    ),
    "no ASCII": (RAW, GOOD | {"X-Service-Signature": "sha256=\udcffé"}, SECRET, "does not match"),
    "in capitals": (
        RAW,
        GOOD | {"X-Service-Signature": f"sha256={GOOD['X-Service-Signature'][7:].upper()}"},
        SECRET,
        "does not match",
    ),
    "another id": (RAW, GOOD | {"webhook-id": "other"}, SECRET, "webhook-signature does not match"),
    "another time": (
        RAW,
        GOOD | {"webhook-timestamp": str(NOW + 1)},
        SECRET,
        "webhook-signature does not match",
    ),
    "another version": (
        RAW,
        GOOD | {"webhook-signature": GOOD["webhook-signature"].replace("v1,", "v2,")},
        SECRET,
        "does not match",
    ),
    "no id": (RAW, _without(GOOD, "webhook-id"), SECRET, "webhook-id"),
    "no time": (RAW, _without(GOOD, "webhook-timestamp"), SECRET, "webhook-timestamp"),
    "a time in words": (RAW, GOOD | {"webhook-timestamp": "now"}, SECRET, "not a number of seconds"),
    "an empty secret": (RAW, GOOD, "", "the secret is empty"),
    "a secret that is none": (RAW, _without(GOOD, "X-Service-Signature"), "é", "64 hexadecimal"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_fit_is_refused_with_a_reason_and_without_the_secret(why: str) -> None:
    raw, headers, secret, words = REFUSED[why]
    with pytest.raises(VerificationError, match=words) as refused:
        verify(raw, headers, secret, now=NOW)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        body(delivered_at=1),
        body(delivered_at="x"),
        body(delivered_at="2026-01-01T00:00:00"),
    ],
)
def test_a_body_that_is_no_event_is_refused_however_well_it_is_signed(raw: bytes) -> None:
    with pytest.raises(VerificationError):
        verify(raw, signed(raw), SECRET, now=NOW)


@pytest.mark.parametrize(
    ("age", "good"), [(0, True), (300, True), (301, False), (-300, True), (-301, False), (86_400, False)]
)
def test_what_was_sent_more_than_five_minutes_ago_is_refused(age: int, *, good: bool) -> None:
    for headers in (
        GOOD,
        _without(GOOD, "X-Service-Signature"),
        {"X-Service-Signature": GOOD["X-Service-Signature"]},
    ):
        if good:
            verify(RAW, headers, SECRET, now=NOW + age)
        else:
            with pytest.raises(VerificationError, match="300 seconds"):
                verify(RAW, headers, SECRET, now=NOW + age)
    verify(RAW, GOOD, SECRET, now=NOW + age, window=1e6)


def test_the_clock_of_the_machine_is_used_where_none_is_given() -> None:
    with pytest.raises(VerificationError, match=r"ahead|ago"):
        verify(RAW, GOOD, SECRET)
    raw = body(delivered_at=datetime.now(UTC).isoformat())
    verify(raw, {"X-Service-Signature": signed(raw)["X-Service-Signature"]}, SECRET)


def test_text_in_place_of_the_raw_body_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="raw body"):
        verify(RAW.decode(), GOOD, SECRET)  # type: ignore[arg-type]


def test_signatures_are_compared_in_constant_time() -> None:
    compared: list[int] = []
    with before_call(hmac.compare_digest, compared.append):
        verify(RAW, GOOD, SECRET, now=NOW)
    assert compared == [1, 2]


def test_it_needs_nothing_but_the_standard_library() -> None:
    """No site-packages, and nothing of the service but the module itself."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from outcrop.webhooks import verify\n"
        "ours = [name for name in sys.modules if name.startswith('outcrop')]; print(ours)\n"
        "rest = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names) "
        "- {'outcrop', '__main__', '__mp_main__'}\n"
        "print(sorted(name for name in rest if not name.startswith('_')))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == ["['outcrop', 'outcrop.webhooks']", "[]"]


# --- the page


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_shell_examples_run_and_know_a_genuine_request(tmp_path: Path) -> None:
    raw = BODIES["every plane of Unicode"]
    headers = signed(raw)
    (tmp_path / "body.json").write_bytes(raw)
    values = {"SECRET": SECRET, "SIGNATURE": headers["X-Service-Signature"]}
    values |= {"WEBHOOK_ID": headers["webhook-id"], "WEBHOOK_TIMESTAMP": headers["webhook-timestamp"]}
    first, second = _blocks("sh")

    def run(script: str, **more: str) -> str:
        environment = {"PATH": os.environ["PATH"]} | values | more
        return subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        ).stdout

    assert run(first) == "genuine\n"
    assert run(first, SECRET="f" * 64) == ""
    assert f"v1,{run(second)}" == headers["webhook-signature"]


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = _blocks("python")
    names: dict[str, Any] = {}
    exec(compile(example, "docs/webhooks.md", "exec"), names)
    raw = body(delivered_at=datetime.now(UTC).isoformat())
    good = {"X-Service-Signature": signed(raw)["X-Service-Signature"]}
    assert names["receive"](raw, good, SECRET) == 204
    assert names["receive"](raw, {}, SECRET) == 400
    assert capsys.readouterr().out == "finding.new x\nthere is no X-Service-Signature header\n"


def test_the_example_bodies_have_the_fields_of_their_events() -> None:
    shown = {event["event"]: event for event in map(json.loads, _blocks("json"))}
    assert set(shown) == {EventType.NEW, EventType.RESOLVED, EventType.FALSE_POSITIVE}
    for name, event in shown.items():
        assert list(event) == ["event", "delivered_at", "client_slug", "finding"]
        assert tuple(event["finding"]) == FIELDS[EventType(name)]
    assert all(f"`{event}`" in PAGE for event in EventType)
