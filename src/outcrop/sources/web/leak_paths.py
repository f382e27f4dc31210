"""Places where sites leave what nobody was meant to read, and how to tell a file from a page that is served for everything."""

from outcrop.net.http import HttpResponse
from outcrop.sources.web.content_types import looks_like_html

GIT_HEAD = "/.git/HEAD"
LEAK_PATHS = (
    "/.env", "/.env.local", "/.env.development", "/.env.production", "/.env.staging", "/.env.test", "/.env.backup", "/.env.bak",
    GIT_HEAD, "/.git/config", "/.git-credentials", "/.npmrc", "/.pypirc", "/.netrc", "/.htpasswd", "/.dockercfg", "/.docker/config.json",
    "/.aws/credentials", "/.ssh/id_rsa", "/.vscode/sftp.json", "/config.json", "/appsettings.json", "/application.properties",
    "/application.yml", "/docker-compose.yml", "/wp-config.php.bak", "/web.config.bak", "/config.php.bak", "/database.yml",
    "/config/database.yml", "/secrets.json", "/credentials.json", "/service-account.json", "/firebase.json", "/terraform.tfstate",
)  # fmt: skip
_ALIKE = 64  # bytes by which two answers of the same kind may differ, or a tenth


def is_leaked_file(place: str, answer: HttpResponse, probe_path: str, probe: HttpResponse) -> bool:
    """Tell whether the answer is a file of that name, given what the site answers for a name that nobody has."""
    body = answer.body
    if not answer.ok or not body.strip() or answer.media_type == "text/html" or looks_like_html(body):
        return False
    if place == GIT_HEAD:
        return is_git_head(body)
    if not probe.ok or probe.media_type != answer.media_type:
        return True
    here, there = (
        text.replace(path.encode(), b"") for text, path in ((body, place), (probe.body, probe_path))
    )
    return here != there and abs(len(here) - len(there)) > max(_ALIKE, len(there) // 10)


def is_git_head(body: bytes) -> bool:
    """Tell whether this is the HEAD of a git folder: the name of a ref, or a commit's id."""
    line = body.strip()
    is_id = len(line) in {40, 64} and not line.strip(b"0123456789abcdef")
    return is_id or (line.startswith(b"ref: refs/") and len(line.split()) == 2)
