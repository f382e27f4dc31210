"""Write the address of a repository in one form: clone URLs, ssh addresses and pages are the same address."""

import re
from urllib.parse import unquote, urlsplit

from outcrop.lazy_regex import regex

# `user@host:path`, the short form of an ssh address. A single letter is a drive of Windows.
_SHORT_FORM = regex(r"(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9.-]{2,}):(?!/{2})(?P<path>[^\s]+)")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEMES = {"http", "https", "ssh", "git", "git+ssh", "git+https"}
_SAME_HOSTS = {
    "www.github.com": "github.com",
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
    "ssh.dev.azure.com": "dev.azure.com",
}
# In the path of a page of a repository: what follows the repository's own path.
_PAGE = regex(r"/-/|/(?:blob|tree|commit|raw|blame|src/(?:branch|commit|tag))/.")
_PAGES_OF_HOST = {
    "github.com": regex(r"/(?:blob|tree|commits?|raw|blame|pulls?|issues|security|actions|wiki)(?:/|\Z)"),
    "bitbucket.org": regex(r"/(?:src|commits|branch|raw)(?:/|\Z)"),
}
_THIRD_SLASH = regex(r"/[^/]+/[^/]+/")
_AZURE_SSH = regex(r"/v3/([^/]+)/([^/]+)/([^/]+)")


def normalise_repository(address: object) -> str | None:
    """Return a repository's address as `https://HOST/PATH` in lower case, or a folder's as `file:///PATH`.

    The address may be a clone URL of any scheme, `user@host:path`, or the page of a file in the repository.
    Login, `.git`, query and default port are left out. Return None for anything
    else.
    """
    text = address.strip() if isinstance(address, str) else ""
    if text.startswith(("/", "file://")):
        path = text.removeprefix("file://").rstrip("/")
        return f"file://{path}" if path.startswith("/") else None
    split = _split(text)
    return None if split is None else f"https://{split[0]}{split[1].lower()}"


def repository_name(address: object) -> str | None:
    """Return OWNER/NAME, which can have more parts, from the address of a repository or of a page in it."""
    split = _split(address.strip()) if isinstance(address, str) else None
    return None if split is None or split[1].count("/") < 2 else split[1][1:]


def _split(text: str) -> tuple[str, str] | None:
    """Return the host, with a port that is not the default one, and the path of a repository's address."""
    text = _with_scheme(text.removesuffix("/"))
    try:
        parts = urlsplit(text)
        port, host, scheme = parts.port, (parts.hostname or "").lower().rstrip("."), parts.scheme.lower()
    except ValueError:
        return None
    if scheme not in _SCHEMES or not host:
        return None
    host = _SAME_HOSTS.get(host, host)
    path = _repository_path(unquote(parts.path), host)
    has_port = scheme in _DEFAULT_PORTS and port not in {None, _DEFAULT_PORTS[scheme]}
    return (f"{host}:{port}" if has_port else host, path) if path else None


def _with_scheme(text: str) -> str:
    """Return the address with a scheme; "" if it has none and its first part is no host, or it has spaces."""
    if "://" in text or any(c.isspace() for c in text):
        return text if "://" in text and len(text.split()) == 1 else ""
    if (short := _SHORT_FORM.fullmatch(text)) is not None:
        return f"ssh://{short['host']}/{short['path'].lstrip('/')}"
    return f"https://{text}" if "." in text.partition("/")[0] else ""


def _repository_path(path: str, host: str) -> str:
    """Return the path of a repository without what follows it, or "" if there is none."""
    path = re.sub(r"/{2,}", "/", path)
    if host == "dev.azure.com" and (azure := _AZURE_SSH.fullmatch(path.removesuffix("/"))) is not None:
        path = "/{}/{}/_git/{}".format(*azure.groups())
    third = _THIRD_SLASH.match(path)  # a page is below OWNER/NAME
    if (
        third is not None
        and (page := _PAGES_OF_HOST.get(host, _PAGE).search(path, third.end() - 1)) is not None
    ):
        path = path[: page.start()]
    path = path.rstrip("/").removesuffix(".git").rstrip("/")
    return path.removeprefix("/scm") if path.startswith("/scm/") else path
