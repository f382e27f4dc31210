"""Histories of other kinds: shallow clones, missing objects, gists and sites."""

import json
import random
import shutil
import subprocess
from pathlib import Path

from prove.history_truth import Seen, compare, compare_local, mask
from prove.repositories import DEFAULT, Repository
from prove.service import Service
from prove.trial import Report
from tests.support.github_host import GitHubHost, stamp
from tests.support.rulesets import github_token
from tests.support.web_host import WebHost, page, script

SITE = "site.example"
_ALL_CODES = (0, 1, 2)  # 2: something could not be read


def try_shallow(service: Service, repository: Repository, report: Report) -> None:
    """Scan a clone that has the newest commits only: all that it has is found."""
    depth = repository.rng.randrange(1, 5)
    folder = repository.folder.with_name(f"shallow-{repository.folder.name}")
    _git("clone", "--quiet", "--bare", f"--depth={depth}", f"file://{repository.folder}", str(folder))
    clone = Repository(folder, repository.rng, exists=True, log=[*repository.log, f"depth {depth}"])
    output = service.run("scan", str(folder), "--no-validate", "--format", "json", codes=_ALL_CODES)
    compare_local(report, "shallow clone", output, clone.truth(), clone)
    report.count("shallow clones")
    shutil.rmtree(folder)


def try_damaged(
    service: Service, repository: Repository, address: str, slug: str, key: str, report: Report
) -> None:
    """Take an object away: the rest is found, and no run resolves what it could not read."""
    kept = repository.folder.with_name(f"kept-{repository.folder.name}")
    repository.folder.rename(kept)
    try:
        missing = _copy_without_an_object(kept, repository)
        output = service.run(
            "scan", str(repository.folder), "--no-validate", "--format", "json", codes=_ALL_CODES
        )
        compare_local(report, "missing object", output, repository.truth(missing), repository)
        before = _states(service, key)
        service.run("scan", "--account", slug, address, "--format", "json", codes=_ALL_CODES)
        after = _states(service, key)
        report.check(
            after == before,
            f"a run of a damaged repository changed {sorted(before ^ after)} after {repository.log}",
        )
        report.count("missing objects")
    finally:
        shutil.rmtree(repository.folder)
        kept.rename(repository.folder)


def _copy_without_an_object(kept: Path, repository: Repository) -> str:
    """Copy a repository with loose objects, remove the object of one file with a token; return its id."""
    _git("clone", "--quiet", "--mirror", "--no-local", f"file://{kept}", str(repository.folder))
    pack = next((repository.folder / "objects/pack").glob("*.pack"), None)
    if pack is not None:
        moved = repository.folder / "pack"
        pack.rename(moved)
        for rest in (repository.folder / "objects/pack").iterdir():
            rest.unlink()
        repository.git("unpack-objects", "-q", stdin=moved.read_bytes())
        moved.unlink()
    ref = next(ref for ref in [DEFAULT, *repository.refs("refs/heads/")] if repository.files(ref))
    path = repository.rng.choice(repository.files(ref))
    blob = repository.git("rev-parse", f"{ref}:{path}")
    (repository.folder / "objects" / blob[:2] / blob[2:]).unlink()
    return blob


def _states(service: Service, key: str) -> set[tuple[str, str]]:
    return {(finding["id"], finding["status"]) for finding in service.findings(key)}


def _git(*arguments: str) -> None:
    subprocess.run(
        ["git", *arguments], check=True, capture_output=True, env=Repository.environment(), cwd="/"
    )


def try_gist(
    service: Service,
    host: GitHubHost,
    root: Path,
    rng: random.Random,
    number: int,
    report: Report,
    *,
    steps: int,
) -> None:
    """Change a gist at random; an account's runs find what a ref reaches, each as a finding of a gist."""
    login = f"jo{number}"
    gist = host.add_gist(login)
    repository = Repository(root / "gist" / f"{gist['id']}.git", rng)
    key = service.account(f"gist-{number}")
    for step in range(steps):
        for _ in range(rng.randrange(1, 5)):
            repository.change()
        if step == 0:
            repository.add_token()
        gist["updated_at"] = stamp(1_000 + 10 * number + step)
        service.run(
            "scan", "--account", f"gist-{number}", f"gists:{login}", "--format", "json", codes=_ALL_CODES
        )
        truth = dict.fromkeys(repository.truth(), "gist")
        compare(report, f"gist, step {step}", service.findings(key), truth, repository.log)
    report.count("gists")


def try_site(
    service: Service, host: WebHost, rng: random.Random, number: int, report: Report, *, steps: int
) -> None:
    """Change a site at random; repeated crawls, a first crawl and the files that it serves agree."""
    address = f"https://{SITE}/s{number}/"
    key = service.account(f"site-{number}")
    pages: dict[str, list[str]] = {}  # path -> tokens
    log: list[str] = []
    for step in range(steps):
        for _ in range(rng.randrange(2, 6)):
            log.append(_change_site(pages, rng, number, len(log)))
        _serve(host, pages, number)
        service.run("scan", "--account", f"site-{number}", address, "--format", "json", codes=_ALL_CODES)
        truth = {
            (path, token): "js_bundle" if path.endswith(".js") else "endpoint"
            for path, tokens in pages.items()
            for token in tokens
        }
        _compare_site(report, f"site, step {step}", service, key, truth, log)
    fresh = service.account(f"fresh-site-{number}")
    service.run("scan", "--account", f"fresh-site-{number}", address, "--format", "json", codes=_ALL_CODES)
    _compare_site(report, "first crawl of a site", service, fresh, truth, log)
    report.count("sites")


def _change_site(pages: dict[str, list[str]], rng: random.Random, number: int, change: int) -> str:
    """Add or remove a page or script, or change the token in one; return what was done."""
    kind = rng.choice(["add", "add", "remove", "replace", "empty"])
    if kind == "add" or not pages:
        path = f"/s{number}/{change}{rng.choice(['.js', ''])}"
        pages[path] = [github_token(f"site {number} {change}")]
        return f"add {path}"
    path = rng.choice(sorted(pages))
    if kind == "remove":
        del pages[path]
    else:
        pages[path] = [github_token(f"site {number} {change}")] if kind == "replace" else []
    return f"{kind} {path}"


def _serve(host: WebHost, pages: dict[str, list[str]], number: int) -> None:
    """Serve exactly these pages, and a start page that leads to all."""
    start = f"/s{number}/"
    for path in [path for path in host.routes if path.startswith(start)]:
        del host.routes[path]
    links = []
    for path, tokens in pages.items():
        texts = [f'var k{n} = "{token}";' for n, token in enumerate(tokens)]
        is_script = path.endswith(".js")
        host.routes[path] = script("".join(texts)) if is_script else page(f"<pre>{''.join(texts)}</pre>")
        links.append(f'<script src="{path}"></script>' if is_script else f'<a href="{path}">more</a>')
    host.routes[start] = page("".join(links))


def _compare_site(
    report: Report, which: str, service: Service, key: str, truth: Seen, log: list[str]
) -> None:
    """Check the open findings of a site; each is named by the path of its address."""
    expected = {(path, mask(token)): kind for (path, token), kind in truth.items()}
    found = service.findings(key)
    open_ = {(f["file_path"], f["matched_text"]): f["source_type"] for f in found if f["status"] == "active"}
    report.check(
        open_ == expected,
        f"{which}: {json.dumps([sorted(map(str, open_.items())), sorted(map(str, expected.items()))])} {log}",
    )
