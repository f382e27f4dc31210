"""Every shell example of the documents runs unchanged; placeholders are filled in with real values."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import psycopg
import pytest

from tests.support.factories import make_line
from tests.support.rulesets import compiled_in, github_token

ROOT = Path(__file__).parents[2]
PAPERS = (
    "accounts",
    "operating",
    "targets",
    "hooks",
    "webhooks",
    "validation",
    "scanning",
    "runs",
    "demo",
)  # in this order each finds what it needs
# These go on until they are stopped; tests/e2e and tests/demo run them.
ENDLESS = ("serve", "worker", "demo")
# These send requests to hosts that a test must not contact, or need an empty database.
# The tests named here run the same commands with a host or a database of their own.
ELSEWHERE = {
    "outcrop scan --account acme github:acme": "tests/services/pipeline/test_pipeline_github.py",
    "outcrop scan --account acme https://www.example.com/": "tests/services/pipeline/test_pipeline_site.py",
    "outcrop restore outcrop-2026-11-15.backup": "tests/cli/test_backup_command.py",
    "outcrop validate --account acme --finding 5e0c9f0a-6c1e-4a53-9d3e-0f7f4a1c2b11": (
        "tests/cli/test_finding_command.py"
    ),
    'printf %s "$TOKEN" | outcrop validate --type github_pat_classic': "tests/cli/test_scan_validation.py",
}


def examples(text: str) -> list[str]:
    """Return the shell commands of a document: indented lines, with or without a prompt."""
    lines = re.findall(r"^ {4}(?:\$ )?((?:printf [^|\n]+\| )?outcrop [^\n]+)$", text, re.MULTILINE)
    return [re.sub(r"\s{2,}#.*", "", line).strip() for line in lines]


def spelled_out(line: str) -> list[str]:
    """Return a line with all its optional parts, once for each of the values that it offers."""
    line = line.replace("[", "").replace("]", "")
    offered = re.search(r"(?<= )[\w-]+(?:\|[\w-]+)+", line)
    return [line.replace(offered[0], finding) for finding in offered[0].split("|")] if offered else [line]


PAPER = {name: examples((ROOT / "docs" / f"{name}.md").read_text()) for name in PAPERS}


def test_no_paper_with_examples_is_left_out() -> None:
    found = {path.stem for path in (ROOT / "docs").glob("*.md") if examples(path.read_text())}
    assert found == set(PAPERS)
    assert sum(map(len, PAPER.values())) > 30
    assert all((ROOT / path).exists() for path in ELSEWHERE.values())
    assert set(ELSEWHERE) <= {line for lines in PAPER.values() for line in lines}


@pytest.mark.parametrize(
    "line", [line for lines in PAPER.values() for line in lines if line.split()[1] in ENDLESS]
)
def test_a_command_that_goes_on_has_the_options_of_its_example(outcrop, line):
    reported = outcrop(line.split()[1], "--help")
    assert reported.code == 0
    for option in re.findall(r"--[a-z-]+", line):
        assert option in reported.out


def test_every_other_example_runs(outcrop, environment, tmp_path, subtests):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/settings.py").write_text(f'TOKEN = "{github_token()}"\n')
    (tmp_path / "config").mkdir()
    (tmp_path / "config/app.env").write_text("\n" * 11 + f"TOKEN={github_token()}\n")
    (tmp_path / "findings.jsonl").write_text(json.dumps(make_line()) + "\n")
    compiled_in(tmp_path / "DIR")
    for command in (
        "init -q -b main",
        "add shop",
        "-c user.name=x -c user.email=x@acme.example commit -qm x",
        "branch origin/main",
    ):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)

    def asked(sql: str) -> str:
        with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
            (row,) = db.execute(sql).fetchone() or ("none",)
            return str(row)

    meant = {
        "key revoke": "SELECT id FROM api_keys",
        "target run": "SELECT id FROM targets",
        "target remove": "SELECT id FROM targets",
        "finding": "SELECT id FROM findings",
    }
    for line in [
        line
        for lines in PAPER.values()
        for line in lines
        if line.split()[1] not in ENDLESS and line not in ELSEWHERE
    ]:
        for finding in spelled_out(line)[
            : 2 if " import " in line else None
        ]:  # tests/services/test_import_formats.py has the others
            words = shlex.split(finding.partition(" > ")[0].rpartition("| ")[2])[1:]
            kind = next((key for key in meant if " ".join(words).startswith(key)), "")
            fills = {
                "SLUG": "acme",
                "FILE": "findings.jsonl",
                "PATH": str(ROOT / "src/outcrop/rules/github.toml"),
                "TARGET...": "shop",
            }
            if kind:
                fills["ID"] = asked(meant[kind])
            ran = outcrop(*(fills.get(word, word) for word in words), stdin="x" * 40, OUTCROP_VALIDATE="off")
            with subtests.test(finding):
                assert ran.code in ({0, 1} if words[0] == "scan" else {0}), ran.err
