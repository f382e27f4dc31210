"""Requests with values in them: a value goes where it belongs and becomes nothing else there."""

import base64
import json
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.scanner.rules.check_spec import RequestSpec
from outcrop.validation.attempt import UncheckableError
from outcrop.validation.http.request import fill_request


@given(st.text(min_size=1, max_size=60))
def test_a_value_in_a_path_stays_in_its_place(value):
    try:
        made = urlsplit(
            fill_request(
                RequestSpec(url="https://api.example/v1/{secret}/me?key={part.id}"),
                {"secret": value, "part.id": value},
            ).url
        )
    except UncheckableError:
        return
    assert made.netloc == "api.example"
    assert made.path.count("/") == 3
    assert parse_qs(made.query, keep_blank_values=True) == {"key": [value]}


@given(st.text(max_size=60))
def test_a_value_in_a_form_or_in_json_comes_out_as_it_is(value):
    try:
        form = fill_request(
            RequestSpec(url="https://a.example/", form={"token": "{secret}"}), {"secret": value}
        ).body
        sent = fill_request(
            RequestSpec(url="https://a.example/", send={"auth": [{"token": "x {secret}"}]}), {"secret": value}
        ).body
    except UncheckableError:
        return
    assert form is not None
    assert sent is not None
    assert parse_qs(form.decode(), keep_blank_values=True) == {"token": [value]}
    assert json.loads(sent) == {"auth": [{"token": f"x {value}"}]}


def test_basic_is_name_and_password():
    made = fill_request(
        RequestSpec(url="https://a.example/", basic=("{part.sid}", "{secret}")),
        {"part.sid": "AC1", "secret": "p:ss"},
    )
    assert made.headers["Authorization"] == "Basic " + base64.b64encode(b"AC1:p:ss").decode()


def test_a_name_with_a_colon_is_not_sent():
    with pytest.raises(UncheckableError):
        fill_request(
            RequestSpec(url="https://a.example/", basic=("{part.sid}", "{secret}")),
            {"part.sid": "a:b", "secret": "c"},
        )


@pytest.mark.parametrize(
    "host", ["evil.example/", "evil.example#", "a@evil.example", "127.0.0.1\\", "", "-a", "a b", "a?b"]
)
def test_a_host_from_the_text_is_a_host(host):
    with pytest.raises(UncheckableError):
        fill_request(RequestSpec(url="https://{part.host}/api"), {"secret": "x", "part.host": host})


@pytest.mark.parametrize(
    "address",
    ["ftp://a.example/", "https:///x", "javascript:alert(1)", "https://a.example/\r\nX: 1", "no address"],
)
def test_an_address_from_the_text_is_an_address_of_the_web(address):
    with pytest.raises(UncheckableError):
        fill_request(RequestSpec(url="{secret}"), {"secret": address})


def test_what_is_missing_is_named():
    with pytest.raises(UncheckableError, match="client id was not found"):
        fill_request(RequestSpec(url="https://a.example/{part.client_id}"), {"secret": "x"})


def test_a_request_does_not_show_its_credential():
    made = fill_request(
        RequestSpec(url="https://a.example/{secret}", headers={"A": "{secret}"}), {"secret": "hunter2hunter2"}
    )
    assert "hunter2" not in repr(made)
