"""Read all settings from `OUTCROP_*` variables and `.env`, once; callers pass them on as plain values."""

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from outcrop.domain.errors import OperatorError
from outcrop.domain.secret import KeepSecrets


def _split_commas(value: object) -> object:
    """Split a comma-separated text into its non-empty parts; return any other value unchanged."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


CommaSeparated = Annotated[list[str], NoDecode, BeforeValidator(_split_commas)]


class Settings(BaseSettings):
    """All settings; docs/operating.md describes each."""

    model_config = SettingsConfigDict(
        env_prefix="OUTCROP_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    data_dir: Path = Path("~/.local/share/outcrop")
    database_url: str | None = None
    postgres_bin: Path | None = None
    base_url: str | None = None
    secret_key: SecretStr | None = None
    rate_limit_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    trusted_proxies: CommaSeparated = []
    cors_origins: CommaSeparated = []
    egress_allow: CommaSeparated = []
    egress_ca_file: Path | None = None
    egress_connect_to: CommaSeparated = []
    egress_source: str | None = None
    egress_closed: bool = False
    github_api_url: str = "https://api.github.com"
    github_token: SecretStr | None = None
    rules: Path | None = None
    validate_: Literal["off", "safe", "full"] = Field("safe", validation_alias="OUTCROP_VALIDATE")
    stale_after_days: Annotated[int, Field(ge=1, le=3650)] = 30
    keep_secrets: KeepSecrets | None = None
    notice: Annotated[str, Field(max_length=300)] | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @field_validator("data_dir", "postgres_bin", "egress_ca_file", "rules")
    @classmethod
    def _make_absolute(cls, value: Path | None) -> Path | None:
        """Expand `~` and make the path absolute."""
        return None if value is None else value.expanduser().absolute()

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        """Accept an https URL, or http on loopback, without query and fragment; drop a final slash."""
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("must be an address such as https://outcrop.example.com")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError("plain http is accepted on a loopback address only")
        return value.rstrip("/")

    @field_validator("github_api_url")
    @classmethod
    def _check_github_api_url(cls, value: str) -> str:
        """Accept an https URL, or plain http on loopback; drop a final slash."""
        parts = urlsplit(value)
        if not parts.hostname or (
            parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname))
        ):
            raise ValueError("must be an https address such as https://api.github.com or https://HOST/api/v3")
        return value.rstrip("/")

    @field_validator("egress_source")
    @classmethod
    def _check_source_address(cls, value: str | None) -> str | None:
        """Accept an IP address and return it in its canonical form."""
        return None if value is None else str(ipaddress.ip_address(value))

    @field_validator("trusted_proxies", "egress_allow")
    @classmethod
    def _check_networks(cls, value: list[str]) -> list[str]:
        """Raise ValueError unless every part is an IP network or address."""
        for part in value:
            ipaddress.ip_network(part, strict=False)
        return value

    @field_validator("egress_connect_to")
    @classmethod
    def _check_connect_to(cls, value: list[str]) -> list[str]:
        """Raise ValueError unless every part is `host:port=address:port`."""
        for part in value:
            if not re.fullmatch(r"[^:=]+:\d{1,5}=(?:\[[0-9A-Fa-f:.]+\]|[0-9.]+):\d{1,5}", part):
                raise ValueError("must be a list of host:port=address:port")
        return value

    @property
    def github_host(self) -> str:
        """Return the host of the web pages that belong to the API, such as `github.com`."""
        host = urlsplit(self.github_api_url).netloc.lower()
        return host.removeprefix("api.") if host == "api.github.com" or host.endswith(".ghe.com") else host

    @property
    def secret_key_file(self) -> Path:
        """Return the file in the data folder that holds the operator's key if no setting does."""
        return self.data_dir / "secret.key"


def is_loopback(host: str) -> bool:
    """Whether the host is `localhost` or a loopback IP address, with or without brackets."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_settings() -> Settings:
    """Read the settings from the environment and `.env`; raise OperatorError for a wrong one."""
    return _build_settings(Settings)


def load_environment_settings() -> Settings:
    """Read the settings from the environment alone: a `.env` may belong to the project that is scanned.

    A `.env` can only forbid more: `OUTCROP_VALIDATE=off` and `OUTCROP_EGRESS_CLOSED` in it are obeyed. If
    it cannot be read, validation is off.
    """
    settings = _build_settings(lambda: Settings(_env_file=None))
    try:
        with_env_file = load_settings()
    except OperatorError:
        return settings.model_copy(update={"validate_": "off"})
    validate = "off" if with_env_file.validate_ == "off" else settings.validate_
    return settings.model_copy(
        update={
            "validate_": validate,
            "egress_closed": settings.egress_closed or with_env_file.egress_closed,
        }
    )


def _build_settings(build: Callable[[], Settings]) -> Settings:
    """Call `build`; turn a ValidationError into an OperatorError that names the setting, not its value."""
    try:
        return build()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = "OUTCROP_" + str(first["loc"][0]).upper() if first["loc"] else "settings"
        raise OperatorError(f"{name}: {first['msg'].removeprefix('Value error, ')}") from None
