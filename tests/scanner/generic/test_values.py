"""Values have shapes."""

import pytest

from outcrop.scanner.generic.values import Shape, shape_of


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("${DB_PASSWORD}", Shape.REFERENCE),
        ("<your-key>", Shape.REFERENCE),
        ("%s", Shape.REFERENCE),
        ("sha256-abc", Shape.PUBLIC),
        ("ECDHE-RSA-AES256-GCM-SHA384", Shape.PUBLIC),
        ("ENC(abcdef)", Shape.ENCRYPTED),
        ("7b3bcec2-374e-4c5a-b2b9-563bf47249f0", Shape.UUID),
        ("refreshToken", Shape.LETTERS),
        ("2024-01-31", Shape.NUMBER),
        ("86400", Shape.NUMBER),
        ("/etc/ssl/server.key", Shape.LOCATION),
        ("https://id.corp/token", Shape.LOCATION),
        ("0123456789abcdef0123", Shape.HEX),
        ("forgot-password-link", Shape.WORDS),
        ("get_token(x)", Shape.CODE),
        ("^[a-z]+$", Shape.CODE),
        ("hunter2", Shape.NUMBERED_WORDS),
        ("copper-lantern-71", Shape.NUMBERED_WORDS),
        ("correct horse battery", Shape.PHRASE),
        ("x9Kd8sLq2mZp", Shape.ALPHANUMERIC),
        ("Wint3r!Oslo", Shape.OTHER),
    ],
)
def test_shape_of_returns_the_shape_of_a_value(value, shape):
    assert shape_of(value.encode()) is shape
