"""The templates for CI: their shell steps run, in a repository with a credential and in one without."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.cli.test_report_to import merging
from tests.support.backend import Backend
from tests.support.rulesets import github_token

CI = Path(__file__).parents[2] / "ci"
PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
OLD, NEW = github_token("ci old"), github_token("ci new")

Variables = dict[str, str]


def git(*arguments: str, cwd: Path) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *arguments], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository as CI has it: `origin/main` has an old credential, the branch none of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    git("init", "-q", "-b", "main", cwd=folder)
    (folder / "old.py").write_text(f"x = '{OLD}'\n")
    git("add", ".", cwd=folder)
    git("commit", "-qm", "one", cwd=folder)
    git("update-ref", "refs/remotes/origin/main", "HEAD", cwd=folder)
    git("remote", "add", "origin", "https://git.example.com/acme/shop.git", cwd=folder)
    (folder / "readme.md").write_text("nothing\n")
    git("add", ".", cwd=folder)
    git("commit", "-qm", "two", cwd=folder)
    return folder


def run_steps(
    steps: list[tuple[str, Variables]], checkout: Path, shell: str, **variables: str
) -> tuple[int, str]:
    """Run shell steps one after the other until one fails; return the last exit code and all output."""
    output = ""
    known = {"PATH": PROGRAMS, "HOME": str(checkout.parent), "OUTCROP_VALIDATE": "off"} | variables
    for script, environment in steps:
        done = subprocess.run(
            [shell, "-e", "-c", script],
            cwd=checkout,
            env=known | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        output += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, output
    return 0, output


def github(checkout: Path, variables: Variables, *, url: str, pull_request: bool) -> tuple[int, str]:
    action = yaml.safe_load((CI / "github" / "action.yml").read_text())
    values = {f"inputs.{name}": str(given["default"]) for name, given in action["inputs"].items()}
    values |= {"runner.temp": str(checkout.parent), "inputs.report-to": url}
    values["inputs.api-key"] = variables.pop("OUTCROP_API_KEY", "")
    base = git("rev-parse", "origin/main", cwd=checkout) if pull_request else ""
    values["github.event.pull_request.base.sha"] = base

    def evaluate(text: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda match: values[match[1]], text)

    steps = [
        (step["run"], {name: evaluate(value) for name, value in step["env"].items()})
        for step in action["runs"]["steps"]
        if "run" in step
    ]
    assert not any(
        "${{" in script for script, _ in steps
    )  # expressions in a script could be injected into it
    files = {"GITHUB_OUTPUT": str(checkout.parent / "output"), "GITHUB_PATH": str(checkout.parent / "path")}
    code, output = run_steps(steps, checkout, "bash", **files, RUNNER_TEMP=str(checkout.parent), **variables)
    outputs = (checkout.parent / "output").read_text()
    assert re.search(r"^version=\d+\.\d+", outputs, re.MULTILINE)
    assert f"found={str(code == 1).lower()}" in outputs
    return code, output


def gitlab(checkout: Path, variables: Variables, *, url: str, pull_request: bool) -> tuple[int, str]:
    job = yaml.safe_load((CI / "gitlab.yml").read_text())["outcrop"]
    environment = {name: value for name, value in job["variables"].items() if name != "XDG_CACHE_HOME"}
    environment["OUTCROP_URL"] = url
    if pull_request:
        environment["CI_MERGE_REQUEST_DIFF_BASE_SHA"] = git("rev-parse", "origin/main", cwd=checkout)
    code, output = run_steps([("\n".join(job["script"]), environment)], checkout, "sh", **variables)
    assert code == 2 or (checkout / job["artifacts"]["reports"]["secret_detection"]).exists()
    return code, output


def azure(checkout: Path, variables: Variables, *, url: str, pull_request: bool) -> tuple[int, str]:
    pipeline = yaml.safe_load((CI / "azure-pipelines.yml").read_text())
    (step,) = [step for step in pipeline["steps"] if "bash" in step]
    environment = {"BUILD_ARTIFACTSTAGINGDIRECTORY": str(checkout), "OUTCROP_URL": url}
    assert environment.keys() - {"BUILD_ARTIFACTSTAGINGDIRECTORY"} <= step["env"].keys()
    if pull_request:
        environment["SYSTEM_PULLREQUEST_TARGETBRANCH"] = "refs/heads/main"
    return run_steps([(step["bash"], environment)], checkout, "bash", **variables)


def jenkins(checkout: Path, variables: Variables, *, url: str, pull_request: bool) -> tuple[int, str]:
    (script,) = re.findall(r"sh '''(.*?)'''", (CI / "Jenkinsfile").read_text(), re.DOTALL)
    environment = {"OUTCROP_URL": url} | ({"CHANGE_TARGET": "main"} if pull_request else {})
    return run_steps([(script, environment)], checkout, "sh", **variables)


TEMPLATES = pytest.mark.parametrize("template", [github, gitlab, azure, jenkins])
Template = Callable[..., tuple[int, str]]


def read_sarif(checkout: Path) -> list[Any]:
    (run,) = json.loads((checkout / "outcrop.sarif").read_text())["runs"]
    return list(run["results"])


@TEMPLATES
def test_a_job_reports_what_the_history_has_and_fails(template: Template, checkout: Path) -> None:
    code, output = template(checkout, {}, url="", pull_request=False)
    assert code == 1, output
    assert len(read_sarif(checkout)) == 1
    assert OLD not in output


@TEMPLATES
def test_a_pull_request_is_judged_by_its_own_commits_and_reports_to_the_service(
    backend: Backend, template: Template, checkout: Path
) -> None:
    tenant = backend.tenant()
    variables = {"OUTCROP_API_KEY": tenant.key}
    code, output = template(checkout, dict(variables), url="", pull_request=True)
    assert (code, read_sarif(checkout)) == (0, []), output
    (checkout / "new.py").write_text(f"y = '{NEW}'\n")
    git("add", "new.py", cwd=checkout)
    git("commit", "-qm", "three", cwd=checkout)
    with merging(backend, tenant):
        code, output = template(checkout, dict(variables), url=backend.base_url, pull_request=True)
    assert code == 1, output
    (result,) = read_sarif(checkout)
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "new.py"
    assert re.search(r"reported: [0-9a-f-]{36}, 1 new, 0 known", output)


@TEMPLATES
def test_a_scan_that_cannot_run_fails_the_job(template: Template, checkout: Path) -> None:
    code, output = template(checkout, {}, url="ftp://wrong", pull_request=False)
    assert code == 2, output
