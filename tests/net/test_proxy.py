"""All outbound connections through the operator's proxy: to checked addresses, and never around it."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from outcrop.domain.errors import OperatorError
from outcrop.domain.proxy_address import ProxyAddress
from outcrop.net.guard import Egress
from outcrop.net.http import HttpError, open_http
from outcrop.net.post import PostClient, PostError
from outcrop.net.tcp import TcpError, connect
from outcrop.sources.git.clone import Remote, clone, list_remote_refs
from tests.support.git_host import GitHost, git_host
from tests.support.pipeline import Repo
from tests.support.proxy import REPLIES, Proxy, run_proxy
from tests.support.tls import make_certificate
from tests.support.web_host import WebHost, page, text, web_host

LOGIN = "us er:pa%ss@w:ord"
IN_URL = "us%20er:pa%25ss%40w%3Aord"
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
SAID = {
    "refuses": "the proxy refuses the connection (HTTP 403)",
    "has no route": "the proxy refuses the connection (HTTP 503)",
    "wants a password": "the proxy requires a user name and password in OUTCROP_EGRESS_PROXY",
    "answers with a page": "the proxy answers with a page and not with a connection",
    "answers with bare HTML": "the proxy does not answer like a proxy",
    "closes": "the proxy closed the connection without an answer",
    "sends headers without end": "the proxy does not answer like a proxy",
    "sends rubbish": "the proxy does not answer like a proxy",
}
assert SAID.keys() == REPLIES.keys()


def through(egress: Egress, proxy: Proxy, *, login: str = "", scheme: str = "http") -> Egress:
    at = f"{login}@" if login else ""
    return replace(egress, proxy=ProxyAddress.parse(f"{scheme}://{at}127.0.0.1:{proxy.port}"))


T = TypeVar("T")


def run_in(loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(work())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[WebHost]:
    with web_host({"/": page("hello"), "/large": text(b"x" * 3_000_000)}, "a.example", tls=tmp_path) as host:
        yield host


@LOOPS
def test_requests_reach_the_checked_address_through_the_proxy(site, loop):
    with run_proxy(login=LOGIN) as proxy:
        egress = through(site.egress, proxy, login=IN_URL)

        async def work() -> tuple[bytes, int]:
            async with open_http(egress) as http:
                small = await http.get("https://a.example/", seconds=60)
                large = await http.get("https://a.example/large", seconds=60)
                return small.body, len(large.body)

        assert run_in(loop, work) == (b"hello", 3_000_000)
    assert set(proxy.asked) == {f"127.0.0.1:{site.port}"}  # the address, and never a.example
    assert site.requests[0].headers["Host"] == "a.example"
    assert "Proxy-Authorization" not in site.requests[0].headers


def test_plain_http_is_a_tunnel_too(tmp_path):
    with web_host({"/": page("plain")}, "b.example") as site, run_proxy() as proxy:

        async def work() -> bytes:
            async with open_http(through(site.egress, proxy)) as http:
                return (await http.get("http://b.example/", seconds=60)).body

        assert asyncio.run(work()) == b"plain"
        assert proxy.asked == [f"127.0.0.1:{site.port}"]


@LOOPS
def test_the_connection_to_the_proxy_can_be_encrypted(site, tmp_path, loop):
    (tmp_path / "proxy").mkdir()
    cert, key = make_certificate(tmp_path / "proxy", "proxy.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    trusted = tmp_path / "both.pem"
    trusted.write_bytes(cert.read_bytes() + (site.ca or Path()).read_bytes())
    with run_proxy(tls=context) as proxy:
        pairs = (*site.egress.connect_to, ("proxy.example", 3128, "127.0.0.1", proxy.port))
        address = ProxyAddress.parse("https://proxy.example:3128")
        egress = replace(site.egress, connect_to=pairs, ca_file=trusted, proxy=address)

        async def work() -> int:
            async with open_http(egress) as http:
                return len((await http.get("https://a.example/large", seconds=60)).body)

        assert run_in(loop, work) == 3_000_000
        assert proxy.asked == [f"127.0.0.1:{site.port}"]
        egress = replace(egress, ca_file=site.ca)
        with pytest.raises(HttpError, match="its certificate is not trusted"):
            run_in(loop, work)


@pytest.mark.parametrize("kind", REPLIES)
def test_a_proxy_that_does_not_connect_is_one_reason_and_no_direct_connection(site, kind):
    with run_proxy(kind=kind) as proxy:
        egress = through(site.egress, proxy)
        assert attempts(egress) == [SAID[kind]] * 3
        assert len(proxy.asked) == 3
    assert site.requests == []


def test_a_wrong_password_is_named_and_not_shown(site):
    with run_proxy(login="somebody:else") as proxy:
        egress = through(site.egress, proxy, login=IN_URL)
        assert (
            attempts(egress) == ["the proxy refuses the user name and password in OUTCROP_EGRESS_PROXY"] * 3
        )
        assert "pa%ss" not in repr(egress)


def test_a_proxy_that_is_down_is_one_reason(site):
    with run_proxy() as proxy:
        pass
    assert attempts(through(site.egress, proxy)) == ["the proxy cannot be connected to"] * 3
    assert site.requests == []


def test_a_proxy_that_hangs_ends_with_the_request(site):
    with run_proxy(kind="hangs") as proxy:
        assert attempts(through(site.egress, proxy), seconds=0.3) == [
            "no complete response within 0.3 seconds",
            "no complete response within 0.3 seconds",
            "no connection within 0.3 seconds",
        ]
    assert site.requests == []


def test_private_addresses_stay_refused_through_a_proxy(site):
    with run_proxy() as proxy:
        egress = through(replace(site.egress, connect_to=()), proxy)
        for host in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "localhost"):
            assert all("not public" in reason for reason in attempts(egress, host=host))
    assert proxy.asked == []


def test_an_untrusted_certificate_of_the_host_is_refused_through_a_proxy(site):
    with run_proxy() as proxy:
        reasons = attempts(replace(through(site.egress, proxy), ca_file=None))
    assert reasons[0] == "TLS failed or the certificate is not trusted"
    assert reasons[1] == "the certificate is not trusted"
    assert site.requests == []


def attempts(egress: Egress, *, host: str = "a.example", seconds: float = 60) -> list[str]:
    """Return why a request, a webhook and a TCP connection fail."""

    async def work() -> list[str]:
        reasons = []
        async with open_http(egress) as http:
            with pytest.raises(HttpError) as failed:
                await http.get(f"https://{host}/", seconds=seconds)
        reasons.append(str(failed.value))
        with pytest.raises(PostError) as refused:
            await PostClient(egress).post(
                f"https://{host}/", {}, b"{}", seconds=seconds, max_bytes=1000, max_body=10
            )
        reasons.append(refused.value.reason)
        tls = ssl.create_default_context()
        with pytest.raises(TcpError) as unconnected:
            await connect(host, 443, egress, seconds=seconds, tls=tls)
        return [*reasons, str(unconnected.value)]

    return asyncio.run(work())


@LOOPS
def test_a_webhook_is_posted_through_the_proxy(tmp_path, loop):
    with web_host({}, "hook.example", tls=tmp_path) as site, run_proxy() as proxy:
        egress = through(site.egress, proxy)

        async def work() -> int:
            client = PostClient(egress)
            sent = await client.post(
                "https://hook.example/", {}, b"{}", seconds=60, max_bytes=9000, max_body=9
            )
            return sent.status

        assert run_in(loop, work) == 501  # the stand-in has no POST
        assert proxy.asked == [f"127.0.0.1:{site.port}"]


@contextmanager
def greeting_server() -> Iterator[int]:
    """Serve one connection of a protocol whose server speaks first, and repeat what is sent to it."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"hello")
            connection.sendall(connection.recv(100))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@LOOPS
def test_a_server_that_speaks_first_is_heard_through_the_proxy(loop):
    with run_proxy() as proxy, greeting_server() as port:

        async def work() -> bytes:
            egress = Egress.parse([], [f"db.example:3306=127.0.0.1:{port}"], None)
            reader, writer = await connect("db.example", 3306, through(egress, proxy), seconds=60)
            greeting = await reader.readexactly(5)
            writer.write(b"SELECT 1")
            answer = await reader.readexactly(8)
            writer.close()
            return greeting + answer

        assert run_in(loop, work) == b"helloSELECT 1"


def test_a_host_that_never_closes_leaves_no_connection_open():
    with run_proxy() as proxy, socket.create_server(("127.0.0.1", 0)) as silent:
        egress = Egress.parse([], [f"db.example:1=127.0.0.1:{silent.getsockname()[1]}"], None)

        async def work() -> int:
            _, writer = await connect("db.example", 1, through(egress, proxy), seconds=60)
            accepted, _ = await asyncio.to_thread(silent.accept)
            writer.close()
            with accepted:
                return len(await asyncio.to_thread(accepted.recv, 10))  # 0: the connection was closed

        assert asyncio.run(work()) == 0


# --- git


@contextmanager
def repository_host(folder: Path) -> Iterator[tuple[GitHost, str]]:
    repository = Repo(folder / "served" / "repo.git")
    repository.commit({"a.txt": "first\n"})
    with git_host(folder / "served", folder) as host:
        yield host, repository.git("rev-parse", "main")


def work_folder(folder: Path) -> Path:
    work = folder / "work"
    work.mkdir()
    return work


REMOTE = Remote("https://git.example/repo.git")


def test_git_clones_through_the_proxy_from_the_checked_address(tmp_path):
    with repository_host(tmp_path) as (host, commit), run_proxy(login=LOGIN) as proxy:
        egress = through(host.egress, proxy, login=IN_URL)
        cloned = clone(REMOTE, work_folder(tmp_path), egress)
        assert cloned.refs[b"refs/heads/main"] == commit.encode()
        assert set(proxy.connected) == {f"127.0.0.1:{host.port}"}
        assert {name for _, name, _ in host.requests} == {f"git.example:{host.port}"}


@pytest.mark.parametrize("kind", REPLIES)
def test_a_proxy_that_refuses_git_is_one_line_and_no_direct_connection(tmp_path, kind):
    with repository_host(tmp_path) as (host, _), run_proxy(kind=kind) as proxy:
        with pytest.raises(OperatorError) as failed:
            list_remote_refs(REMOTE, work_folder(tmp_path), through(host.egress, proxy))
        assert failed.value.message == f"{REMOTE.url}: cannot be cloned: {SAID[kind]}"
        assert host.requests == []


def test_git_does_not_reach_a_private_address_through_a_proxy(tmp_path):
    with run_proxy() as proxy, pytest.raises(OperatorError, match="not public"):
        clone(Remote("https://127.0.0.1/x.git"), tmp_path, through(Egress(), proxy))
    assert proxy.asked == []
