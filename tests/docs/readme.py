"""Read the sessions that the README shows, and make the repository that it scans."""

import os
import re
import subprocess
from pathlib import Path

from outcrop.scanner.rules.example_templates import expand_template
from tests.docs.inventory import ROOT

README = (ROOT / "README.md").read_text()
_SECONDS = 1_770_000_000  # of the first commit
_PERSON = {"NAME": "Jo", "EMAIL": "jo@shop.example"}
_TOKEN = "ghp_{{base62 30}}{{crc32_base62}}"
_STRIPE_KEY = "sk_live_{{base62 24}}"
_TEST_KEY = "sk_test_{{base62 24}}"
# Files of each commit.
_COMMITS: list[dict[str, str]] = [
    {
        "deploy/release.sh": f"#!/bin/sh\nexport GITHUB_TOKEN={_TOKEN}\n",
        "shop/settings.py": f'DEBUG = False\nSTRIPE_KEY = "{_STRIPE_KEY}"\n',
    },
    {
        "deploy/release.sh": "#!/bin/sh\nexport GITHUB_TOKEN\n",
        "k8s/secret.yaml": "data:\n  STRIPE_KEY: {{b64 " + _TEST_KEY + "}}\n",
    },
]


def session(command: str) -> str:
    """Return the output that the README shows below a command."""
    block = re.search(rf"^    \$ {re.escape(command)}\n((?:    .*\n|\n(?=    ))*)", README, re.MULTILINE)
    assert block is not None, f"README.md does not show {command}"
    return re.sub(r"^    ", "", block[1], flags=re.MULTILINE)


def missing_lines(shown: str, printed: str) -> list[str]:
    """Return the lines of a shown session that the program did not print; `…` matches any text."""
    lines = [line.strip() for line in shown.splitlines() if line.strip("… ")]
    patterns = [(line, ".*".join(re.escape(part) for part in line.split("…"))) for line in lines]
    return [line for line, pattern in patterns if not re.search(rf"^\s*{pattern}$", printed, re.MULTILINE)]


def make_repository(folder: Path) -> None:
    """Create the repository that the README scans, with the same ids of commits on every machine."""
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _PERSON.items()},
    }

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True)

    folder.mkdir()
    git("init", "--quiet", "--initial-branch=main", "--object-format=sha1")
    for number, files in enumerate(_COMMITS):
        for name, template in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(expand_template(template, "README"))
        environment |= {
            f"GIT_{who}_DATE": f"{_SECONDS + 86_400 * number} +0000" for who in ("AUTHOR", "COMMITTER")
        }
        git("add", ".")
        git("commit", "--quiet", "--message", f"Version {number + 1}")
