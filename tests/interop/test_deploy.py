"""Check the container, Kubernetes and systemd files, and the alert rules, with the linters of others."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.interop.node import NotAvailableError, install_python_programs

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    try:
        install_python_programs()
    except NotAvailableError as error:
        pytest.skip(str(error))


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_hadolint_finds_nothing_in_the_containerfile() -> None:
    done = run(BIN / "hadolint", "--failure-threshold", "style", "Containerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_manifest_is_valid_for_kubernetes() -> None:
    import kubernetes_validate  # noqa: PLC0415 - installed by the fixture

    checked = 0
    for file in MANIFESTS:
        for resource in YAML(typ="safe").load_all(file):
            if resource["kind"] == "Kustomization":  # a file of kustomize, with no schema in Kubernetes
                continue
            for version in ("1.29", kubernetes_validate.latest_version()):
                kubernetes_validate.validate(resource, version, strict=True)
            checked += 1
    assert checked >= 9


def test_systemd_verifies_the_units(tmp_path: Path) -> None:
    if (program := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze: not installed")
    for unit in UNITS:
        text = unit.read_text().replace("/opt/outcrop/bin/outcrop", str(BIN / "outcrop"))
        (tmp_path / unit.name).write_text(text)
    done = run(program, "verify", *(tmp_path / unit.name for unit in UNITS))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_every_query_is_promql() -> None:
    import promql_parser  # noqa: PLC0415 - installed by the fixture

    dashboard = json.loads((ROOT / "deploy/grafana/outcrop.json").read_text())
    alerts = YAML(typ="safe").load(ROOT / "deploy/prometheus/alerts.yml")
    queries = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    queries += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 20
    for query in queries:
        promql_parser.parse(query.replace("$__rate_interval", "5m"))
