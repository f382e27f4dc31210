"""The fake hosts of the pipeline benchmark, in a process of their own: GitHub's API, git, a web site.

python -m bench.pipeline_hosts FOLDER REPOSITORIES PAGES DELAY prints the settings for `outcrop` as one line
of JSON, and serves until its standard input ends. The repositories are made once and kept in the folder.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from bench.scan_corpus import Planter
from tests.support.git_host import ENV, git_host
from tests.support.github_host import github_host, merge_egress
from tests.support.web_host import Route, page, script, web_host

OWNER = "bench"
_COMMITS, _FILES, _LINES = 20, 12, 120


def main() -> None:
    folder, repositories, pages, delay = (
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]),
    )
    root = folder / "served"
    for number in range(repositories):
        if not (root / OWNER / f"r{number}.git").exists():
            make_repository(root / OWNER / f"r{number}.git", number)
    tls = folder / f"tls-{os.getpid()}"
    tls.mkdir()
    with (
        git_host(root, tls) as git,
        github_host(tls) as github,
        web_host(_make_site(pages), "site.example") as site,
    ):
        git.delay = github.delay = delay
        for number in range(repositories):
            github.add_repo(f"{OWNER}/r{number}", has_wiki=False)
        egress = merge_egress(tls, git.egress, github.egress)
        pairs = [
            f"{host}:{port}={address}:{to}"
            for host, port, address, to in [*egress.connect_to, *site.egress.connect_to]
        ]
        settings = {
            "OUTCROP_GITHUB_API_URL": github.base_url,
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": ",".join(pairs),
            "OUTCROP_EGRESS_CA_FILE": str(egress.ca_file),
        }
        print(json.dumps(settings), flush=True)
        sys.stdin.read()


def make_repository(path: Path, number: int) -> None:
    """Make a small realistic repository: a few files, some commits, and a credential now and then."""
    chance = random.Random(number)
    words = [f"word{n}" for n in range(2_000)]
    planter = Planter(f"pipeline {number}")
    files = {
        f"src/module_{n}.py": [_random_line(chance, words) for _ in range(_LINES)] for n in range(_FILES)
    }
    stream: list[bytes] = []
    for commit in range(_COMMITS):
        changed = files if commit == 0 else dict(chance.sample(sorted(files.items()), 3))
        for lines in changed.values():
            for _ in range(8):
                lines[chance.randrange(len(lines))] = _random_line(chance, words)
        for _, written in planter.take_due(200_000):
            changed["src/settings.py"] = [
                *files.get("src/settings.py", []),
                written.decode("utf-8", "replace").rstrip("\n"),
            ]
            files["src/settings.py"] = changed["src/settings.py"]
        stream.append(_fast_import_commit(commit, changed))
    path.mkdir(parents=True)
    subprocess.run(
        ["git", "init", "--quiet", "--bare", "--initial-branch=main", str(path)], check=True, env=ENV
    )
    subprocess.run(
        ["git", "-C", str(path), "fast-import", "--quiet"], check=True, env=ENV, input=b"".join(stream)
    )


def _random_line(chance: random.Random, words: list[str]) -> str:
    return "    " + " ".join(chance.choices(words, k=8))


def _fast_import_commit(number: int, changed: dict[str, list[str]]) -> bytes:
    """Return a commit with these files in the format of `git fast-import`."""
    seconds = 1_600_000_000 + number * 86_400
    parts = [
        f"commit refs/heads/main\ncommitter Ada <ada@example.org> {seconds} +0000\ndata 6\nchange\n".encode()
    ]
    for path, lines in sorted(changed.items()):
        content = "\n".join(lines).encode() + b"\n"
        parts.append(f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n")
    return b"".join(parts)


def _make_site(pages: int) -> dict[str, Route]:
    """Return a site: a tree of linked pages, each with a script. One script in ten has a credential."""
    chance = random.Random("site")
    words = [f"word{n}" for n in range(2_000)]
    planter = Planter("site")
    routes: dict[str, Route] = {}
    for number in range(pages // 2):
        text = "\n".join(_random_line(chance, words) for _ in range(100))
        links = "".join(
            f'<a href="/p{child}.html">more</a>'
            for child in range(8 * number + 1, 8 * number + 9)
            if child < pages // 2
        )
        routes["/" if number == 0 else f"/p{number}.html"] = page(
            f'<body>{links}<p>{text}</p><script src="/js/b{number}.js"></script>'
        )
        secret = "".join(
            written.decode("utf-8", "replace")
            for suffix, written in planter.take_due(200_000)
            if suffix is None
        )
        routes[f"/js/b{number}.js"] = script(
            "\n".join(f"// {_random_line(chance, words)}" for _ in range(400)) + f"\n{secret}\n"
        )
    return routes


if __name__ == "__main__":
    main()
