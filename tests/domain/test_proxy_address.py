"""Addresses of a proxy."""

import pytest

from outcrop.domain.proxy_address import ProxyAddress


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://proxy.example:3128", ProxyAddress("proxy.example", 3128)),
        ("http://proxy.example", ProxyAddress("proxy.example", 80)),
        ("https://proxy.example/", ProxyAddress("proxy.example", 443, tls=True)),
        ("http://10.0.0.1:8080", ProxyAddress("10.0.0.1", 8080)),
        ("http://[fd00::1]:8080", ProxyAddress("fd00::1", 8080)),
        ("http://us%3Aer@proxy.example", None),
        ("http://me:pa%40ss:word@p.example", ProxyAddress("p.example", 80, login="me:pa@ss:word")),
        ("http://me@p.example", ProxyAddress("p.example", 80, login="me:")),
        ("proxy.example:3128", None),
        ("socks5://proxy.example", None),
        ("http:///", None),
        ("http://proxy.example:0", None),
        ("http://proxy.example:99999", None),
        ("http://proxy.example/path", None),
        ("http://proxy.example?a=hidden", None),
        ("http://proxy .example", None),
        ("http://proxy.example\r\nX: y", None),
        ("http://[fd00::1", None),
    ],
)
def test_an_address_is_parsed_or_refused_without_repeating_it(text, expected):
    if expected is not None:
        assert ProxyAddress.parse(text) == expected
        return
    with pytest.raises(ValueError, match=r"the user name|must be an address such as") as refused:
        ProxyAddress.parse(text)
    assert text not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
