"""The templates for CI follow the schemas of their systems."""

import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / "ci"


@pytest.mark.usefixtures("node")  # installs the locked packages
@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("github-actions", "github/action.yml"),
        ("github-workflows", "github/workflow.yml"),
        ("gitlab-ci", "gitlab.yml"),
        ("azure-pipelines", "azure-pipelines.yml"),
    ],
)
def test_a_template_follows_the_schema(schema: str, file: str) -> None:
    options = ["--builtin-schema", f"vendor.{schema}"]
    if not schema.startswith("github"):  # tags and expressions of their own
        options += ["--data-transform", schema, "--regex-variant", "nonunicode"]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *options, CI / file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
