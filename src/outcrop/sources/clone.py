"""Bringing a repository here over https, to the one address that was checked, with nothing else allowed."""

import base64
import os
import signal
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.net.guard import Egress, resolve
from outcrop.sources import gitcall
from outcrop.sources.repository import Repository, open_mirror

_DEADLINE = 3_600.0


def clone(url: str, work: Path, egress: Egress) -> Repository:
    """Clone every ref of a repository. A name and password in the address travel as a header, not in an argument."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or 443
    except ValueError:
        host, port = None, 0
    if parts.scheme != "https" or not host or parts.query or parts.fragment:
        raise OperatorError("only https addresses of repositories can be cloned")
    address, at_port = resolve(host, port, egress)
    folder = work / "mirror.git"
    shown = f"https://{parts.netloc.rpartition('@')[2]}{parts.path}"
    # The name stays in the address, for the certificate; git is told which address it has.
    source = shown if at_port == port else f"https://{host}:{at_port}{parts.path}"
    pinned = f"[{address}]" if ":" in address else address
    config = {"http.curloptResolve": f"{host}:{at_port}:{pinned}", "http.lowSpeedLimit": "100", "http.lowSpeedTime": "60", "http.proxy": ""}
    if egress.ca_file:
        config["http.sslCAInfo"] = str(egress.ca_file)
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        config["http.extraHeader"] = "Authorization: Basic " + base64.b64encode(login.encode()).decode()
    process = subprocess.Popen(
        ["git", "clone", "--quiet", "--mirror", "--template=", "--", source, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=gitcall.environment(config, protocols="https"),
        cwd=work,
        start_new_session=True,
        preexec_fn=gitcall.limit,  # noqa: PLW1509 - system calls only, no lock is taken
    )
    with process:
        try:
            _, errors = process.communicate(timeout=_DEADLINE)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise OperatorError(f"{shown}: cloning took longer than an hour") from None
            raise
    if process.returncode:
        raise OperatorError(f"{shown}: cannot be cloned: {_last_line(errors)}")
    return open_mirror(folder)


def _last_line(errors: bytes) -> str:
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]
    return (fatal or lines[-1:] or ["git gave no reason"])[0]
