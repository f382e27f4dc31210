"""JSON Web Tokens, judged by their content."""

import base64
import json

import pytest

from outcrop.validation.offline.jwt import judge_jwt

NOW = 1_700_000_000


def encode_part(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


def make_token(header: object, claims: object, signature: str = "s" * 43) -> str:
    return ".".join([encode_part(header), encode_part(claims), *([signature] if signature else [])])


@pytest.mark.parametrize(
    ("token", "status", "confidence", "reason"),
    [
        (make_token({"alg": "RS256"}, {"exp": NOW - 1}), "invalid", "high", "has expired"),
        (make_token({"alg": "none"}, {"exp": NOW - 1}, ""), "invalid", "high", "has expired"),
        (
            make_token({"alg": "RS256"}, {"exp": NOW + 60}),
            "unvalidated",
            "low",
            "has not expired; its signature was not verified",
        ),
        (
            make_token({"alg": "HS256"}, {"exp": NOW + 60.5}),
            "unvalidated",
            "low",
            "has not expired; it is signed with a shared key",
        ),
        (make_token({"alg": "HS256"}, {}), "unvalidated", "low", "never expires"),
        (make_token({"alg": "ES256"}, {"nbf": NOW + 60}), "unvalidated", "low", "not valid yet"),
        (make_token({"alg": "nOnE"}, {}), "invalid", "low", "not signed"),
        (make_token({"alg": "RS256"}, {}, ""), "invalid", "low", "not signed"),
        (make_token({"alg": "RS256"}, {"exp": True}), "unvalidated", "low", "never expires"),
        (make_token({"alg": "RS256"}, {"exp": "soon"}), "unvalidated", "low", "never expires"),
        (make_token({"alg": "RS256"}, {"exp": 10**400}), "unvalidated", "low", "never expires"),
        (make_token({"alg": "RS256"}, {"exp": float("inf")}), "unvalidated", "low", "never expires"),
        (make_token({"alg": ["x"]}, {}), "unvalidated", "low", "never expires"),
        (make_token([], {}), "invalid", "low", "not a complete token"),
        ("eyJ" + "[" * 5000 + ".eyJ.s", "invalid", "low", "not a complete token"),
        (make_token({"alg": "RS256"}, {})[:-60], "invalid", "low", "not a complete token"),
    ],
)
def test_a_token_is_judged_by_its_header_and_claims(token, status, confidence, reason):
    verdict = judge_jwt(token, NOW)
    assert (verdict.status, verdict.confidence) == (status, confidence)
    assert reason in verdict.reason
