"""Bringing a repository here over https, to the one address that was checked, with nothing else allowed."""

import base64
import os
import signal
import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.net.guard import Egress, resolve
from outcrop.sources.git import command
from outcrop.sources.git.repository import Repository, open_mirror

_DEADLINE = 3_600.0
COMMIT_REF = b"refs/outcrop/commit"  # what a single commit is fetched as


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository elsewhere. A name and password travel as a header, not in an argument."""

    url: str
    login: tuple[str, str] | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> "Remote":
        """Take name and password out of an address."""
        try:
            parts = urlsplit(url)
        except ValueError:  # not repeated: it may hold a password
            raise OperatorError("an https address was given whose host cannot be read") from None
        if parts.username is None:
            return cls(url)
        return cls(
            parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
            (unquote(parts.username), unquote(parts.password or "")),
        )


def clone(remote: Remote, work: Path, egress: Egress) -> Repository:
    """Clone every ref of a repository."""
    source, config = _reach(remote, work, egress)
    folder = work / "mirror.git"
    _run(["clone", "--quiet", "--mirror", "--template=", "--", source, str(folder)], remote, config, work)
    repository = open_mirror(folder)
    if (folder / "shallow").is_file():
        repository.gaps.append("the host's own history is cut off: what is older is not there")
    return repository


def listed_refs(remote: Remote, work: Path, egress: Egress) -> dict[bytes, bytes]:
    """Ask for the refs of a repository, HEAD among them; what a tag leads to is not one."""
    source, config = _reach(remote, work, egress)
    lines = _run(["ls-remote", "--quiet", "--", source], remote, config, work).split(b"\n")
    return {
        name: oid
        for oid, tab, name in (line.partition(b"\t") for line in lines)
        if tab and not name.endswith(b"^{}")
    }


def fetch_commit(remote: Remote, commit: str, work: Path, egress: Egress) -> Repository:
    """Bring one commit and its parents."""
    source, config = _reach(remote, work, egress)
    folder = work / "commit.git"
    _run(["init", "--quiet", "--bare", "--template=", str(folder)], remote, config, work)
    fetch = [
        "--git-dir",
        str(folder),
        "fetch",
        "--quiet",
        "--no-tags",
        "--depth=2",
        "--end-of-options",
        source,
    ]
    _run([*fetch, f"{commit}:{COMMIT_REF.decode()}"], remote, config, work)
    return open_mirror(folder)


def _reach(remote: Remote, work: Path, egress: Egress) -> tuple[str, dict[str, str]]:
    """Give the address for git and the configuration that keeps it there."""
    try:
        parts = urlsplit(remote.url)
        host, port = parts.hostname, parts.port or 443
    except ValueError:
        raise OperatorError("only https addresses of repositories can be cloned") from None
    if parts.scheme != "https" or not host or parts.query or parts.fragment:
        raise OperatorError("only https addresses of repositories can be cloned")
    address, at_port = resolve(host, port, egress)
    # The name stays in the address, for the certificate; git is told which address it has.
    source = remote.url if at_port == port else f"https://{host}:{at_port}{parts.path}"
    pinned = f"[{address}]" if ":" in address else address
    config = {
        "http.curloptResolve": f"{host}:{at_port}:{pinned}",
        "http.lowSpeedLimit": "100",
        "http.lowSpeedTime": "60",
        "http.proxy": "",
    }
    if egress.ca_file:
        config["http.sslCAInfo"] = str(_trusted(egress.ca_file, work))
    if remote.login:
        config["http.extraHeader"] = (
            "Authorization: Basic " + base64.b64encode(":".join(remote.login).encode()).decode()
        )
    return source, config


def _trusted(own: Path, work: Path) -> Path:
    """Write what the machine trusts and the operator's own certificates into one file: git takes one."""
    system = ssl.get_default_verify_paths().cafile
    file = work / "trusted.pem"
    try:
        file.write_bytes((Path(system).read_bytes() + b"\n" if system else b"") + own.read_bytes())
    except OSError as error:
        raise OperatorError(f"OUTCROP_EGRESS_CA_FILE: {error.strerror}") from None
    return file


def _run(arguments: list[str], remote: Remote, config: dict[str, str], work: Path) -> bytes:
    process = subprocess.Popen(
        ["git", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.environment(config, protocols="https"),
        cwd=work,
        start_new_session=True,
    )
    command.bound(process.pid)
    with process:
        try:
            out, errors = process.communicate(timeout=_DEADLINE)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise OperatorError(f"{remote.url}: cloning took longer than an hour") from None
            raise
    if process.returncode:
        raise OperatorError(f"{remote.url}: cannot be cloned: {_last_line(errors)}")
    return out


def _last_line(errors: bytes) -> str:
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]
    return (fatal or lines[-1:] or ["git gave no reason"])[0]
