"""Paths at which sites often serve private files by mistake, and how to recognise such a file."""

from outcrop.net.http import HttpResponse
from outcrop.sources.web.content_types import looks_like_html

GIT_HEAD = "/.git/HEAD"
LEAK_PATHS = (
    "/.env", "/.env.local", "/.env.development", "/.env.production", "/.env.staging", "/.env.test",
    "/.env.backup", "/.env.bak", GIT_HEAD, "/.git/config", "/.git-credentials", "/.npmrc", "/.pypirc",
    "/.netrc", "/.htpasswd", "/.dockercfg", "/.docker/config.json", "/.aws/credentials", "/.ssh/id_rsa",
    "/.vscode/sftp.json", "/config.json", "/appsettings.json", "/application.properties",
    "/application.yml", "/docker-compose.yml", "/wp-config.php.bak", "/web.config.bak", "/config.php.bak",
    "/database.yml", "/config/database.yml", "/secrets.json", "/credentials.json",
    "/service-account.json", "/firebase.json", "/terraform.tfstate",
)  # fmt: skip
_MIN_DIFFERENCE = 64  # bytes, or a tenth: by less, two responses count as the same error page


def is_leaked_file(path: str, response: HttpResponse, probe_path: str, probe: HttpResponse) -> bool:
    """Whether the response for a leak path is a file, and not the page that the site serves for every path.

    `path` is the leak path. `probe` is the response for `probe_path`, a random path that does not exist.
    False for a failure, an empty body and HTML, and for a body of the same media type and nearly the same
    length as that of `probe`. A file at GIT_HEAD must be the HEAD of a git folder instead; `probe` does not
    matter.
    """
    body = response.body
    if not response.ok or not body.strip() or response.media_type == "text/html" or looks_like_html(body):
        return False
    if path == GIT_HEAD:
        return is_git_head(body)
    if not probe.ok or probe.media_type != response.media_type:
        return True
    # An error page may repeat the requested path.
    text, probe_text = body.replace(path.encode(), b""), probe.body.replace(probe_path.encode(), b"")
    difference = abs(len(text) - len(probe_text))
    return text != probe_text and difference > max(_MIN_DIFFERENCE, len(probe_text) // 10)


def is_git_head(body: bytes) -> bool:
    """Whether the body is a HEAD file of a git folder: `ref: refs/…`, or the hexadecimal id of a commit."""
    line = body.strip()
    is_id = len(line) in {40, 64} and not line.strip(b"0123456789abcdef")
    return is_id or (line.startswith(b"ref: refs/") and len(line.split()) == 2)
