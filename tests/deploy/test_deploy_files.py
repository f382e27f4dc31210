"""The container, Kubernetes and systemd files agree with the program. Nothing here starts them.

`make test-interop` checks them with the linters of others.
"""

import configparser
import re
import shlex
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from outcrop import __version__
from outcrop.cli.commands import called_command
from outcrop.settings import Settings
from outcrop.settings_sources import FILE_SUFFIX, setting_names, variable
from tests.docs import inventory

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (ROOT / "Containerfile").read_text()
COMPOSE = YAML(typ="safe").load(ROOT / "compose.yaml")
KUSTOMIZATION = YAML(typ="safe").load(DEPLOY / "kubernetes/kustomization.yaml")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
VARIABLES = {variable(name) for name in setting_names()} | {
    variable(field) + FILE_SUFFIX for field in Settings.SECRET
}
COMMANDS = inventory.commands()


def resources() -> list[dict[str, Any]]:
    """Return every resource that the kustomization lists."""
    files = [DEPLOY / "kubernetes" / name for name in KUSTOMIZATION["resources"]]
    return [resource for file in files for resource in YAML(typ="safe").load_all(file)]


def of_kind(*kinds: str) -> list[Any]:
    return [resource for resource in resources() if resource["kind"] in kinds]


WORKLOADS = of_kind("Deployment", "Job")
CONTAINERS = {
    workload["metadata"]["name"]: workload["spec"]["template"]["spec"]["containers"][0]
    for workload in WORKLOADS
}
OUTCROP_SERVICES = {name: service for name, service in COMPOSE["services"].items() if name != "database"}


def check_arguments(given: list[str]) -> None:
    """Check that a command line is one of the program's."""
    while given[0] == "--env-file":
        given = given[2:]
    command = COMMANDS[called_command(given)]
    assert {word for word in given if word.startswith("--")} <= inventory.options_of(command).keys()


def test_every_file_of_kubernetes_is_in_the_kustomization() -> None:
    files = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(KUSTOMIZATION["resources"])
    assert KUSTOMIZATION["images"][0]["newTag"] == __version__


def test_every_variable_is_a_setting() -> None:
    texts = {
        path: path.read_text() for path in [*DEPLOY.rglob("*.*"), ROOT / "compose.yaml"] if path.is_file()
    }
    texts[ROOT / "Containerfile"] = CONTAINERFILE
    named = defaultdict(set)
    for path, text in texts.items():
        named[path] |= set(re.findall(r"\bOUTCROP_[A-Z_]+[A-Z]", text)) - {"OUTCROP_USER"}
    assert sum(map(len, named.values())) > 10
    assert {path: names - VARIABLES for path, names in named.items() if names - VARIABLES} == {}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_pod_has_few_rights(name: str) -> None:
    workload = next(workload for workload in WORKLOADS if workload["metadata"]["name"] == name)
    pod, container = workload["spec"]["template"]["spec"], CONTAINERS[name]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "the service `outcrop` would set OUTCROP_PORT=tcp://…"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/var/lib/outcrop", "/var/cache/outcrop", "/tmp"} <= mounts
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    check_arguments(container["args"])


def test_pods_have_probes_on_ports_that_they_listen_on() -> None:
    serve, worker = CONTAINERS["outcrop-serve"], CONTAINERS["outcrop-worker"]
    paths = {kind: serve[kind]["httpGet"]["path"] for kind in ("livenessProbe", "readinessProbe")}
    assert paths == {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert worker["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": "metrics"}
    (settings,) = of_kind("ConfigMap")
    ports = {port["name"]: port["containerPort"] for port in serve["ports"]}
    assert ports == {"http": Settings.port, "metrics": 9464}
    assert settings["data"]["OUTCROP_METRICS_LISTEN"].endswith(f":{ports['metrics']}")
    Settings(**{name.removeprefix("OUTCROP_").lower(): value for name, value in settings["data"].items()})


def test_selectors_find_their_pods() -> None:
    labels = {
        workload["metadata"]["name"]: workload["spec"]["template"]["metadata"]["labels"]
        for workload in WORKLOADS
    }
    selectors = [resource["spec"]["selector"] for resource in of_kind("Service")]
    selectors += [
        resource["spec"]["selector"]["matchLabels"]
        for resource in of_kind("PodDisruptionBudget", "Deployment")
    ]
    for selector in selectors:
        found = [name for name, own in labels.items() if selector.items() <= own.items()]
        assert len(found) == 1, selector
    (policy,) = of_kind("NetworkPolicy")
    assert all(policy["spec"]["podSelector"]["matchLabels"].items() <= own.items() for own in labels.values())
    metadata = policy["spec"]["egress"][-1]["to"][0]["ipBlock"]["except"]
    assert "169.254.0.0/16" in metadata


@pytest.mark.parametrize("name", OUTCROP_SERVICES)
def test_a_service_of_compose_has_few_rights(name: str) -> None:
    service = OUTCROP_SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"].endswith(":-10001:10001}")
    assert not any(key.isupper() and "PASSWORD" in key for key in service["environment"])
    assert "/tmp" in service["tmpfs"] or "work:/tmp" in service["volumes"]
    check_arguments(service["command"])


def test_compose_names_its_volumes_and_secrets() -> None:
    services = COMPOSE["services"].values()
    mounted = {mount.split(":")[0] for service in services for mount in service.get("volumes", ())}
    assert mounted == set(COMPOSE["volumes"])
    used = {secret for service in services for secret in service.get("secrets", ())}
    assert used == set(COMPOSE["secrets"])
    assert {service["image"] for service in OUTCROP_SERVICES.values()} == {"outcrop:latest"}
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert "ports" not in COMPOSE["services"]["database"]


def test_the_image_runs_as_an_ordinary_user_and_has_a_health_check() -> None:
    assert re.findall(r"^USER (.*)$", CONTAINERFILE, re.MULTILINE) == ["10001:10001"]
    assert CONTAINERFILE.count("HEALTHCHECK") == 1
    assert "/readyz" in CONTAINERFILE
    assert "--require-hashes" in CONTAINERFILE
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE)
    allowed = (ROOT / ".containerignore").read_text()
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}\n" in allowed
    check_arguments(["serve"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_has_few_rights_and_starts_a_command(path: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(path.read_text())
    service = unit["Service"]
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "RestrictNamespaces", "RestrictSUIDSGID"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["User"] == "outcrop"
    program, *given = shlex.split(service["ExecStart"])
    assert program == "/opt/outcrop/bin/outcrop"
    check_arguments(given)
