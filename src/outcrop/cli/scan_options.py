"""The options of `outcrop scan`, as types of its parameters."""

from pathlib import Path
from typing import Annotated

import typer

from outcrop.cli.scan_arguments import PROCESSES_AT_MOST, ScanTargetType
from outcrop.cli.scan_output import OutputFormat
from outcrop.domain.finding import Confidence

_TARGETS = (
    "Folders, files, git repositories (path or https address), GitHub names, web pages, or - for stdin."
)


Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="TARGET...", help=_TARGETS, show_default="the current folder"),
]
Account = Annotated[
    str | None, typer.Option("--account", metavar="SLUG", help="Record the findings in this account.")
]
TypeOfTargets = Annotated[
    ScanTargetType | None, typer.Option("--type", help="The type of the targets, if the guess is wrong.")
]

HostUrl = Annotated[
    str | None, typer.Option("--host-url", metavar="URL", help="Address of a self-hosted code host.")
]

Discussions = Annotated[
    bool, typer.Option("--discussions", help="Of a code host: also issues, pull requests and comments.")
]

# --- The output

Format = Annotated[
    OutputFormat | None, typer.Option("--format", help="The output format.", show_default="table")
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
Outputs = Annotated[
    list[str] | None,
    typer.Option("-o", "--output", metavar="[FORMAT=]FILE", help="Also write the findings to this file."),
]
Quiet = Annotated[
    bool,
    typer.Option("-q", "--quiet", help="Print no table, no progress and no notes; gaps and errors only."),
]
ReportTo = Annotated[
    str | None,
    typer.Option(
        "--report-to", metavar="URL", help="Send the findings to this service; needs OUTCROP_API_KEY."
    ),
]
ReportWait = Annotated[
    bool, typer.Option("--report-wait", help="With --report-to: wait until the report is merged.")
]
Reveal = Annotated[bool, typer.Option("--reveal", help="Also print the raw credentials.")]

# --- Validation

NoValidate = Annotated[
    bool, typer.Option("--no-validate", help="Do not ask issuers whether credentials are valid.")
]
OnlyValid = Annotated[
    bool, typer.Option("--only-valid", help="Show only credentials that the issuer accepts.")
]

# --- What is scanned

Jobs = Annotated[
    int,
    typer.Option("--jobs", min=0, max=PROCESSES_AT_MOST, help="Number of processes; 0 means one per core."),
]
Include = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="GLOB", help="Only files that match, in .gitignore syntax."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="GLOB", help="No files that match, in .gitignore syntax."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="REV", help="Scan only the commits after this revision."),
]
FromRef = Annotated[
    str | None,
    typer.Option("--from-ref", metavar="REV", help="With --to-ref: scan only the commits between the two."),
]
ToRef = Annotated[
    str | None, typer.Option("--to-ref", metavar="REV", help="The last commit to scan, with --from-ref.")
]
Staged = Annotated[bool, typer.Option("--staged", help="Scan only what is staged for the next commit.")]
PreCommit = Annotated[
    bool,
    typer.Option(
        "--pre-commit",
        help="For the hook of pre-commit, which names the files: scan what it runs on.",
    ),
]
Gitignore = Annotated[
    bool, typer.Option("--gitignore", help="In a folder: skip files that .gitignore excludes.")
]
NoTests = Annotated[
    bool, typer.Option("--no-tests", help="Leave out tests, examples, documentation and vendored code.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Ignore the results of earlier scans.")]

# --- What is reported

MinConfidence = Annotated[Confidence, typer.Option("--confidence", help="The lowest confidence to report.")]
Rules = Annotated[
    list[Path] | None,
    typer.Option("--rules", help="Additional rules: a file or a folder."),
]
GitleaksConfig = Annotated[
    Path | None,
    typer.Option("--gitleaks-config", help="Additional rules in the format of gitleaks.toml."),
]
WantedRules = Annotated[
    list[str] | None, typer.Option("--rule", metavar="ID", help="Report only findings of this rule.")
]
UnwantedRules = Annotated[
    list[str] | None, typer.Option("--no-rule", metavar="ID", help="Report no findings of this rule.")
]
Baseline = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        help="An earlier result, or a report of another scanner; its findings are not reported again.",
    ),
]
Allow = Annotated[
    Path | None, typer.Option("--allow", metavar="FILE", help="Leave out the findings that this file names.")
]
AllowAll = Annotated[
    Path | None,
    typer.Option("--allow-all", metavar="FILE", help="Add an entry to this file for each finding."),
]
IgnoreMarks = Annotated[
    bool, typer.Option("--ignore-marks", help="Nothing in the source leaves a finding out.")
]
