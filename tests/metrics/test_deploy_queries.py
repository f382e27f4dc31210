"""The dashboard and the alert rules name only metrics and labels that are served, and all of the metrics."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from ruamel.yaml import YAML

from outcrop import metrics
from outcrop.cli.metrics_server import _ServiceCollector
from outcrop.services.activity import Activity, WaitingWork
from tests.support.exposition import Served, parse

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/outcrop.json").read_text())
ALERTS = YAML(typ="safe").load(ROOT / "deploy/prometheus/alerts.yml")
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
QUERIES = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]
SELECTOR = re.compile(r"\b((?:outcrop_\w+)|up)\b(\{[^}]*\})?")
MATCHER = re.compile(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"')
GROUPING = re.compile(r"\bby \(([\w, ]*)\)")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Return an answer in which every metric has its labels."""
    folder = tmp_path_factory.mktemp("metrics")
    metrics.start_recording(folder, "api0")
    metrics.count_request("/api/v1/findings", "GET", 200, 0.1)
    metrics.count_request("/api/v1/findings", "GET", 503, 0.1)
    metrics.stop_recording()
    registry = CollectorRegistry()
    metrics.add_processes(registry, folder)
    queues = ("runs", "requests", "imports", "pushes", "polls")
    waiting = WaitingWork(dict.fromkeys(queues, 0), dict.fromkeys(queues, 0.0), 0)
    registry.register(_ServiceCollector(Activity(is_up=True, waiting=waiting)))
    return parse(generate_latest(registry).decode())


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_what_is_served(served: Served, query: str) -> None:
    selectors = SELECTOR.findall(query)
    assert selectors
    for name, matchers in selectors:
        if name == "up":  # of Prometheus itself
            continue
        assert name in served.labels, name
        for label, pattern in MATCHER.findall(matchers):
            assert label in served.labels[name]
            own = {dict(labels)[label] for (other, labels) in served.values if other == name}
            assert any(re.fullmatch(pattern, value) for value in own), (label, pattern, own)
    for label in {label.strip() for group in GROUPING.findall(query) for label in group.split(",")}:
        assert any(label in served.labels.get(name, ()) for name, _ in selectors) or label == "instance"


def test_the_dashboard_shows_every_metric(served: Served) -> None:
    shown = {name for query in QUERIES for name, _ in SELECTOR.findall(query)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in served.labels} <= families


def test_every_alert_is_described() -> None:
    page = (ROOT / "docs/operating.md").read_text().partition("### What to watch\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in RULES]
    assert all(rule["labels"]["severity"] in {"critical", "warning"} for rule in RULES)


def test_every_metric_is_described(served: Served) -> None:
    page = (ROOT / "docs/operating.md").read_text().partition("## Metrics\n")[2].partition("\n### ")[0]
    described = dict(re.findall(r"^\| `(outcrop_\w+)` \| (.*?) \|", page, re.MULTILINE))
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in served.labels}
    assert described.keys() == names
    for name, cell in described.items():
        series = f"{name}_sum" if name == "outcrop_http_request_seconds" else name
        assert set(re.findall(r"`(\w+)`", cell)) == served.labels[series], name


def test_the_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)
