"""Random histories: an incremental scan, a full scan and git's own commands must agree after every step."""

import time

from prove.history_kinds import SITE, try_damaged, try_gist, try_shallow, try_site
from prove.history_truth import compare, compare_local
from prove.repositories import Repository
from prove.service import Service, open_service
from prove.trial import Report, Setting
from tests.support.git_host import git_host
from tests.support.github_host import NAME, github_host
from tests.support.web_host import web_host


def try_histories(setting: Setting, report: Report) -> None:
    """Change repositories, gists and sites at random, scan them after every few changes, and compare."""
    rng = setting.random()
    root, tls, site_tls = (setting.folder / name for name in ("repositories", "tls", "site"))
    tls.mkdir(parents=True)
    site_tls.mkdir()
    with (
        git_host(root, tls, hours=(-1, 48)) as host,
        github_host(setting.folder) as github,
        web_host({}, SITE, tls=site_tls) as site,
    ):
        trusted = setting.folder / "all.pem"
        trusted.write_bytes(b"".join(ca.read_bytes() for ca in (host.ca, github.ca, site.ca) if ca))
        ports = {"git.example": host.port, NAME: github.port, SITE: site.port}
        egress = {
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": ",".join(f"{n}:443=127.0.0.1:{port}" for n, port in ports.items()),
            "OUTCROP_EGRESS_CA_FILE": str(trusted),
            "OUTCROP_GITHUB_API_URL": f"https://{NAME}",
        }
        with open_service(setting.folder / "service", **egress) as service:
            service.serve("--no-worker")
            deadline, number = setting.deadline(), 0
            while time.monotonic() < deadline or number == 0:
                number += 1
                _try_history(service, Repository(root / f"r{number}.git", rng), number, setting, report)
                if number % 3 == 1:
                    steps = 2 if setting.short else rng.randrange(2, 5)
                    try_gist(service, github, root, rng, number, report, steps=steps)
                    try_site(service, site, rng, number, report, steps=steps)


def _try_history(
    service: Service, repository: Repository, number: int, setting: Setting, report: Report
) -> None:
    """Compare after every few changes of one repository."""
    address = f"https://git.example/r{number}.git"
    steps = 2 if setting.short else repository.rng.randrange(3, 9)
    follower = service.account(f"follower-{number}")
    for step in range(steps):
        for _ in range(repository.rng.randrange(1, 8)):
            repository.change()
        if step == 0:
            repository.add_token()
        truth = repository.truth()
        _scan(service, f"follower-{number}", address)
        compare(report, "incremental", service.findings(follower), truth, repository.log)
        report.count("incremental scans")
    fresh = service.account(f"fresh-{number}")
    _scan(service, f"fresh-{number}", address)
    compare(report, "full", service.findings(fresh), truth, repository.log)
    local = service.run("scan", address, "--no-validate", "--format", "json", codes=(0, 1))
    compare_local(report, "local", local, truth, repository)
    try_shallow(service, repository, report)
    if any(repository.files(ref) for ref in repository.refs("refs/heads/")):
        try_damaged(service, repository, address, f"follower-{number}", follower, report)
    report.count("histories")


def _scan(service: Service, slug: str, address: str) -> None:
    service.run("scan", "--account", slug, address, "--format", "json", codes=(0, 1))
