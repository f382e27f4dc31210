"""Run Python as a container would: another root folder, read-only, another user id, no home folder.

Needs root, or skips the test: mounts and a user id of somebody else are allowed to root only.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

USER = 54321  # without an entry in /etc/passwd
SYSTEM = ("/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr")
ROOT = Path(__file__).parents[2]


def run_like_a_container(
    driver: Path, work: Path, *, writable: Path, settings: dict[str, str], hidden: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a Python file in a new root folder, and return the ended process.

    The root has the system, this Python, the program and the tests, all read-only; `writable` and /tmp are
    the only folders that can be written to. `work` is an empty folder. `hidden` folders are empty there.
    """
    _require_rights()
    root = work / "root"
    root.mkdir()
    visible = [*map(Path, SYSTEM), Path(sys.base_prefix), Path(sys.prefix), ROOT]
    visible = [path for path in dict.fromkeys(visible) if path.exists()]
    inner = [path for path in visible if any(other in path.parents for other in visible)]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    commands = [
        "set -eu",
        f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(root))}",
        f"mkdir {root}/tmp {root}/proc {root}/dev",
        f"mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs {root}/tmp",
        *(_bind(root, path, "ro") for path in visible if path not in inner),
        *(f"mount -t tmpfs -o mode=555,ro tmpfs {shlex.quote(f'{root}{path}')}" for path in hidden),
        _bind(root, writable, "rw"),
        f"mount -t proc proc {root}/proc",
        f"mount --rbind /dev {root}/dev",
        f"mount -o remount,ro {root}",
        f"cd / && exec chroot {root} /usr/bin/env -i "
        + shlex.join([f"{name}={value}" for name, value in (environment | settings).items()])
        + f" /usr/bin/setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs"
        " --bounding-set -all --inh-caps -all " + shlex.join([sys.executable, str(driver)]),
    ]
    for path in (writable, *writable.rglob("*")):
        os.chown(path, USER, USER)
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", "\n".join(commands)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _bind(root: Path, path: Path, mode: str) -> str:
    """Return the commands that show a file or folder of the machine in the new root."""
    source, target = shlex.quote(str(path)), shlex.quote(f"{root}{path}")
    make = f"mkdir -p {target}" if path.is_dir() else f"mkdir -p $(dirname {target}) && touch {target}"
    return f"{make} && mount --bind {source} {target} && mount -o remount,bind,{mode},nosuid {target}"


def _require_rights() -> None:
    """Skip the test where no other root folder and user id can be used."""
    if os.geteuid() != 0:
        pytest.skip("not run: only root can use another root folder and another user id")
    for program in ("unshare", "setpriv", "chroot"):
        if shutil.which(program) is None:
            pytest.skip(f"not run: there is no {program} here")
    allowed = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "sh",
        "-c",
        "mount -t tmpfs tmpfs /mnt && chroot / true",
    ]
    if subprocess.run(allowed, capture_output=True, check=False).returncode != 0:
        pytest.skip("not run: mounts are not allowed here")
