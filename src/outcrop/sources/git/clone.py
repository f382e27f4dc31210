"""Clone and fetch repositories over https, only from the IP address that the egress guard has checked."""

import base64
import os
import signal
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import IO
from urllib.parse import unquote, urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.lazy_regex import regex
from outcrop.limits import GIT_OUTPUT_BYTES, GIT_SECONDS, SOURCE_LIMITS, SourceLimits
from outcrop.net.forwarder import Forwarder, forward
from outcrop.net.guard import Egress, resolve
from outcrop.sandbox import Sandbox, start_restricted
from outcrop.sources.budget import SourceBudget
from outcrop.sources.git import command
from outcrop.sources.git.repository import Repository, open_mirror

_FILE_ALLOWANCE = 1 << 30  # bytes of one file beyond the quota of the folder, which is measured once a second
_CHECK_OUTPUT_EVERY = 1.0  # seconds
_TOO_MUCH_OUTPUT = "{}: cannot be cloned: its host sends too many refs or messages"
# git takes any other answer of a host for the dumb protocol, and a sign-in page for an empty repository.
_TRACE_HEADERS = {"GIT_TRACE_CURL": "2", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
_TRACE_LINE = regex(rb"[\d:.]+ http\.c:\d+ ")
_SMART_RESPONSE = regex(rb"(?im)<= Recv header: content-type: application/x-git-upload-pack-advertisement")
COMMIT_REF = b"refs/outcrop/commit"  # the ref that `fetch_commit` creates
_NO_CONFIG: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Remote:
    """The https address of a repository, and its user name and password.

    git gets these as a request header, not in an argument.
    """

    url: str
    login: tuple[str, str] | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> "Remote":
        """Return a Remote with the address without user name and password, and with these as `login`.

        `login` is None if the address has no user name. Raise OperatorError if the address cannot be parsed.
        """
        try:
            parts = urlsplit(url)
        except ValueError:  # the address is not in the message: it may hold a password
            raise OperatorError("an https address was given whose host cannot be read") from None
        if parts.username is None:
            return cls(url)
        return cls(
            parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
            (unquote(parts.username), unquote(parts.password or "")),
        )


def clone(remote: Remote, work: Path, egress: Egress, budget: SourceBudget | None = None) -> Repository:
    """Clone all refs of a repository into `work`/mirror.git, and return the clone opened.

    `egress` has the network rules for the host, and `budget` watches what git costs. A gap is added to the
    result if the remote repository is shallow. Raise OperatorError if it cannot be cloned or its host may not
    be connected to.
    """
    connection = _prepare_connection(remote, work, egress)
    folder = work / "mirror.git"
    _run(
        ["clone", "--quiet", "--mirror", "--template=", "--", connection.source, str(folder)],
        remote,
        connection,
        work,
        budget,
    )
    repository = open_mirror(folder, budget)
    if (folder / "shallow").is_file():
        repository.gaps.append("the repository on the host is shallow: older history is missing")
    return repository


def list_remote_refs(
    remote: Remote, work: Path, egress: Egress, budget: SourceBudget | None = None
) -> dict[bytes, bytes]:
    """Return the refs of a remote repository (name -> object id), HEAD included, peeled tags (`^{}`) not.

    git runs in the folder `work`, and `budget` watches what it costs. Raise OperatorError if the repository
    cannot be read or its host may not be connected to.
    """
    connection = _prepare_connection(remote, work, egress)
    output = _run(["ls-remote", "--quiet", "--", connection.source], remote, connection, work, budget)
    return {
        name: oid
        for oid, tab, name in (line.partition(b"\t") for line in output.split(b"\n"))
        if tab and not name.endswith(b"^{}")
    }


def fetch_commit(
    remote: Remote, commit: str, work: Path, egress: Egress, budget: SourceBudget | None = None
) -> Repository:
    """Fetch a commit and its parents into the new repository `work`/commit.git, and return that opened.

    `commit` is the hexadecimal id, and `budget` watches what git costs. The ref COMMIT_REF of the result
    names the commit. Older commits are not fetched. Raise OperatorError if git cannot fetch the commit or its
    host may not be connected to.
    """
    connection = _prepare_connection(remote, work, egress)
    folder = work / "commit.git"
    _run(["init", "--quiet", "--bare", "--template=", str(folder)], remote, None, work)
    fetch = [
        "--git-dir",
        str(folder),
        "fetch",
        "--quiet",
        "--no-tags",
        "--depth=2",
        "--end-of-options",
        connection.source,
    ]
    _run([*fetch, f"{commit}:{COMMIT_REF.decode()}"], remote, connection, work, budget)
    return open_mirror(folder, budget)


@dataclass(frozen=True, slots=True)
class _Connection:
    """How git connects to a host."""

    source: str  # the address for git, with another port if `egress` replaces it
    config: dict[str, str] = field(repr=False)  # git settings, among them the login
    egress: Egress
    authority: str  # host and port in `source`
    address: str  # the checked IP address, and its port
    port: int

    @contextmanager
    def open(self) -> Iterator[tuple[dict[str, str], Forwarder | None]]:
        """Yield the git settings, and the forwarder to the operator's proxy if there is one.

        The forwarder runs until the block ends.
        """
        if self.egress.proxy is None:
            yield self.config, None
            return
        with forward(self.egress, self.authority, self.address, self.port) as forwarder:
            yield self.config | {"http.proxy": forwarder.url, "http.proxyAuthMethod": "basic"}, forwarder


def _prepare_connection(remote: Remote, work: Path, egress: Egress) -> _Connection:
    """Return the address for git, and the git settings that pin the host to the IP address `egress` chooses.

    The settings also limit slow transfers, disable the proxies of the environment, and have the login of
    `remote` if there is one. If `egress` has a CA file, a bundle with it is written to
    the folder `work` and is in the settings too. Raise OperatorError if the address of `remote` is not https
    or has a query or fragment, and EgressError if the host may not be connected to.
    """
    try:
        parts = urlsplit(remote.url)
        host, port = parts.hostname, parts.port or 443
    except ValueError:
        raise OperatorError("only https addresses of repositories can be cloned") from None
    if parts.scheme != "https" or not host or parts.query or parts.fragment:
        raise OperatorError("only https addresses of repositories can be cloned")
    address, at_port = resolve(host, port, egress)
    # The host name stays in the address for the TLS certificate; curloptResolve sets its IP address.
    source = remote.url if at_port == port else f"https://{host}:{at_port}{parts.path}"
    pinned = f"[{address}]" if ":" in address else address
    config = {
        "http.curloptResolve": f"{host}:{at_port}:{pinned}",
        "http.lowSpeedLimit": "100",
        "http.lowSpeedTime": "60",
        "http.proxy": "",
    }
    if egress.ca_file:
        config["http.sslCAInfo"] = str(_write_ca_bundle(egress.ca_file, work))
    if remote.login:
        config["http.extraHeader"] = (
            "Authorization: Basic " + base64.b64encode(":".join(remote.login).encode()).decode()
        )
    shown_host = f"[{host}]" if ":" in host else host
    return _Connection(source, config, egress, f"{shown_host}:{at_port}", address, at_port)


def _write_ca_bundle(ca_file: Path, work: Path) -> Path:
    """Write the CA certificates of the system and of `ca_file` to `work`/trusted.pem, and return that path.

    git takes only one file. `ca_file` is set by the operator. Raise OperatorError if a file cannot be read or
    the bundle cannot be written.
    """
    system = ssl.get_default_verify_paths().cafile
    bundle = work / "trusted.pem"
    try:
        bundle.write_bytes((Path(system).read_bytes() + b"\n" if system else b"") + ca_file.read_bytes())
    except OSError as error:
        raise OperatorError(f"OUTCROP_EGRESS_CA_FILE: {error.strerror}") from None
    return bundle


def _run(
    arguments: list[str],
    remote: Remote,
    connection: _Connection | None,
    work: Path,
    budget: SourceBudget | None = None,
) -> bytes:
    """Run git with these arguments in the folder `work`; return its output. None: it does not connect.

    Raise OperatorError with the address of `remote` and git's reason if git fails, or with the limit if
    `budget` has cut git short. Kill git and raise OperatorError after GIT_SECONDS, or if it prints more than
    GIT_OUTPUT_BYTES. With a connection, also raise OperatorError if what answers is not a git host.
    """
    limits = budget.limits if budget else SOURCE_LIMITS
    # Files, since a host can send endless refs and messages: a pipe would be read into our memory.
    with (
        tempfile.TemporaryFile(dir=work) as out,
        tempfile.TemporaryFile(dir=work) as errors,
        connection.open() if connection else nullcontext((_NO_CONFIG, None)) as (config, forwarder),
    ):
        code = _wait_for_git(arguments, remote, config, work, (out, errors), limits)
        if budget and budget.reason:
            raise OperatorError(f"{remote.url}: cannot be cloned: {budget.reason}")
        output, error_text = (_read_output(file, remote) for file in (out, errors))
    messages = [line for line in error_text.splitlines() if not _TRACE_LINE.match(line)]
    if code:
        reason = (forwarder and forwarder.failure) or _failure_reason(messages)
        raise OperatorError(f"{remote.url}: cannot be cloned: {reason}")
    if connection and not _SMART_RESPONSE.search(error_text):
        raise OperatorError(f"{remote.url}: cannot be cloned: the answer is not that of a git host")
    return output


def _read_output(file: IO[bytes], remote: Remote) -> bytes:
    """Return what git has written to a file; raise OperatorError if that is more than GIT_OUTPUT_BYTES."""
    if file.seek(0, os.SEEK_END) > GIT_OUTPUT_BYTES:
        raise OperatorError(_TOO_MUCH_OUTPUT.format(remote.url))
    file.seek(0)
    return file.read()


def _wait_for_git(  # noqa: PLR0917 - what git gets, and its limits
    arguments: list[str],
    remote: Remote,
    config: dict[str, str],
    work: Path,
    outputs: tuple[IO[bytes], IO[bytes]],
    limits: SourceLimits,
) -> int:
    """Run git with standard output and error output to two files; return its exit code.

    It can write only in the folder `work`.

    Kill git and raise OperatorError after GIT_SECONDS seconds, or when a file has more than GIT_OUTPUT_BYTES.
    """
    process = start_restricted(
        Sandbox((work,), network=True),
        lambda: subprocess.Popen(
            ["git", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            env=command.environment(config, protocols="https") | _TRACE_HEADERS,
            cwd=work,
            start_new_session=True,
        ),
    )
    # The quota of the folder comes first: it names the limit.
    command.limit_resources(process.pid, limits.git_memory, limits.disk + _FILE_ALLOWANCE)
    deadline = monotonic() + GIT_SECONDS
    failure = None
    with process:
        try:
            while failure is None:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=_CHECK_OUTPUT_EVERY)
                if any(os.fstat(file.fileno()).st_size > GIT_OUTPUT_BYTES for file in outputs):
                    failure = _TOO_MUCH_OUTPUT.format(remote.url)
                elif monotonic() > deadline:
                    failure = f"{remote.url}: cloning took longer than an hour"
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    raise OperatorError(failure)


def _failure_reason(messages: list[bytes]) -> str:
    """Return the first "fatal: " line of git's error output without that word, or else the last line.

    Return "git gave no reason" if there is no line.
    """
    lines = [text for line in messages if (text := line.decode("utf-8", "replace")).strip()]
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]
    return (fatal or lines[-1:] or ["git gave no reason"])[0]
