"""Find the code hosts that this program knows: every module in `sources/hosts` that defines `HOST_TYPE`."""

import importlib
import pkgutil
from functools import cache

from outcrop.domain.place import COMMIT_MESSAGE, TAG_MESSAGE, line_address
from outcrop.sources.code_host.host import CodeHost, HostAccess, HostType

_PACKAGE = "outcrop.sources.hosts"


@cache
def host_types() -> tuple[HostType, ...]:
    """Return all kinds of code hosts, by name."""
    package = importlib.import_module(_PACKAGE)
    modules = [
        importlib.import_module(f"{_PACKAGE}.{found.name}")
        for found in pkgutil.iter_modules(package.__path__)
    ]
    types = [module.HOST_TYPE for module in modules if hasattr(module, "HOST_TYPE")]
    return tuple(sorted(types, key=lambda type_: type_.name))


def find_host_type(name: str) -> HostType | None:
    """Return the kind of code host with this name; None if there is none."""
    return next((type_ for type_ in host_types() if type_.name == name), None)


def open_host(name: str, access: HostAccess) -> CodeHost:
    """Open an instance of the kind of code host with this name, which must exist."""
    type_ = find_host_type(name)
    if type_ is None:
        raise LookupError(f"there is no code host {name!r}")
    return type_.open(access)


def line_url(name: str | None, base: str, commit: str | None, path: bytes | None, line: int) -> str:
    """Return the web address of a line of a repository, as the code host with this name writes it.

    `base` is the address of the repository. Without a commit, a path or a known host it is the result. The
    path of a commit message leads to the commit.
    """
    type_ = find_host_type(name) if name else None
    if type_ is None or type_.line_url is None:
        return line_address(base, commit, path, line, github=name == "github")
    base = base.removesuffix("/").removesuffix(".git")
    if commit is None or path is None:
        return base
    is_message = path in {COMMIT_MESSAGE, TAG_MESSAGE}
    return type_.line_url(base, commit, None if is_message else path.partition(b"!")[0], line)
