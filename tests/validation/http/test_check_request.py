"""Fill the requests of rule files: a value stays in its position and cannot become anything else."""

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
def test_a_value_in_a_url_cannot_change_host_path_or_query(value):
    try:
        url = urlsplit(
            fill_request(
                RequestSpec(url="https://api.example/v1/{secret}/me?key={part.id}"),
                {"secret": value, "part.id": value},
            ).url
        )
    except UncheckableError:
        return
    assert url.netloc == "api.example"
    assert url.path.count("/") == 3
    assert parse_qs(url.query, keep_blank_values=True) == {"key": [value]}


@given(st.text(max_size=60))
def test_a_value_in_a_form_or_json_arrives_unchanged(value):
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


def test_basic_authentication_has_user_and_password():
    filled = fill_request(
        RequestSpec(url="https://a.example/", basic=("{part.sid}", "{secret}")),
        {"part.sid": "AC1", "secret": "p:ss"},
    )
    assert filled.headers["Authorization"] == "Basic " + base64.b64encode(b"AC1:p:ss").decode()


def test_a_user_name_with_a_colon_is_refused():
    with pytest.raises(UncheckableError):
        fill_request(
            RequestSpec(url="https://a.example/", basic=("{part.sid}", "{secret}")),
            {"part.sid": "a:b", "secret": "c"},
        )


@pytest.mark.parametrize(
    "host", ["evil.example/", "evil.example#", "a@evil.example", "127.0.0.1\\", "", "-a", "a b", "a?b"]
)
def test_a_host_from_the_text_must_be_a_host_name(host):
    with pytest.raises(UncheckableError):
        fill_request(RequestSpec(url="https://{part.host}/api"), {"secret": "x", "part.host": host})


@pytest.mark.parametrize(
    "address",
    ["ftp://a.example/", "https:///x", "javascript:alert(1)", "https://a.example/\r\nX: 1", "no address"],
)
def test_a_url_from_the_text_must_be_http_or_https(address):
    with pytest.raises(UncheckableError):
        fill_request(RequestSpec(url="{secret}"), {"secret": address})


def test_a_missing_companion_is_named():
    with pytest.raises(UncheckableError, match="client id was not found"):
        fill_request(RequestSpec(url="https://a.example/{part.client_id}"), {"secret": "x"})


def test_the_repr_of_a_request_hides_the_credential():
    filled = fill_request(
        RequestSpec(url="https://a.example/{secret}", headers={"A": "{secret}"}), {"secret": "hunter2hunter2"}
    )
    assert "hunter2" not in repr(filled)
