"""The names of the formats that can be imported."""

from enum import StrEnum


class ImportFormat(StrEnum):
    """The formats of imported files."""

    AUTO = "auto"
    OUTCROP = "outcrop"
    GITLEAKS = "gitleaks"
    TRUFFLEHOG = "trufflehog"
    KINGFISHER = "kingfisher"
    SARIF = "sarif"
    DETECT_SECRETS = "detect-secrets"
    GGSHIELD = "ggshield"
    GITHUB = "github"
    GITLAB = "gitlab"
    DEFECTDOJO = "defectdojo"
    CSV = "csv"
