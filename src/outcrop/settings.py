"""All settings with their types, defaults and checks.

`settings_sources` reads them once; callers pass them on as plain values.
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from outcrop.domain.proxy_address import ProxyAddress
from outcrop.domain.secret import KeepSecrets
from outcrop.limits import MEGA, SOURCE_LIMITS, SourceLimits

_MAX_PORT = 65535
_PATHS = ("data_dir", "postgres_bin", "egress_ca_file", "rules")
_DEFAULT_DATA_DIR = Path("~/.local/share/outcrop")


def _split_commas(value: object) -> object:
    """Split a comma-separated text into its non-empty parts; return any other value unchanged."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


CommaSeparated = Annotated[list[str], NoDecode, BeforeValidator(_split_commas)]


class Settings(BaseSettings):
    """All settings; docs/operating.md describes each."""

    model_config = SettingsConfigDict(
        env_prefix="OUTCROP_",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    PATHS: ClassVar[tuple[str, ...]] = _PATHS
    # Printed masked. Each can also be read from a file: OUTCROP_SECRET_KEY_FILE=/run/secrets/key
    SECRET: ClassVar[tuple[str, ...]] = (
        "database_url",
        "secret_key",
        "egress_proxy",
        "github_token",
        "host_tokens",
        "api_key",
    )

    data_dir: Path = _DEFAULT_DATA_DIR
    database_url: str | None = None
    postgres_bin: Path | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=_MAX_PORT)] = 8000
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
    egress_proxy: SecretStr | None = None
    webhook_ports: CommaSeparated = []
    github_api_url: str = "https://api.github.com"
    github_token: SecretStr | None = None
    host_tokens: SecretStr | None = None
    rules: Path | None = None
    validate_: Literal["off", "safe", "full"] = Field("safe", validation_alias="OUTCROP_VALIDATE")
    stale_after_days: Annotated[int, Field(ge=1, le=3650)] = 30
    keep_secrets: KeepSecrets | None = None
    max_source_seconds: Annotated[int, Field(ge=1)] = int(SOURCE_LIMITS.seconds)
    max_source_memory_mb: Annotated[int, Field(ge=300)] = SOURCE_LIMITS.memory // MEGA
    max_source_disk_mb: Annotated[int, Field(ge=1)] = SOURCE_LIMITS.disk // MEGA
    max_work_disk_mb: Annotated[int, Field(ge=1)] = SOURCE_LIMITS.total_disk // MEGA
    max_findings_per_source: Annotated[int, Field(ge=1)] = SOURCE_LIMITS.findings
    import_max_mb: Annotated[int, Field(ge=1, le=100_000)] = 256
    url: str | None = None
    api_key: SecretStr | None = None
    notice: Annotated[str, Field(max_length=300)] | None = None
    metrics_listen: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @field_validator(*_PATHS)
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

    @field_validator("egress_proxy")
    @classmethod
    def _check_proxy(cls, value: SecretStr | None) -> SecretStr | None:
        """Raise ValueError unless the value is the address of a proxy; an empty one is none."""
        if value is None or not value.get_secret_value():
            return None
        ProxyAddress.parse(value.get_secret_value())
        return value

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

    @field_validator("metrics_listen")
    @classmethod
    def _check_metrics_listen(cls, value: str | None) -> str | None:
        """Raise ValueError unless the text is `host:port`; an IPv6 address is in brackets."""
        if value is not None:
            _split_address(value)
        return value

    @field_validator("webhook_ports")
    @classmethod
    def _check_ports(cls, value: list[str]) -> list[str]:
        """Raise ValueError unless every part is a port."""
        if any(
            re.fullmatch(r"[0-9]{1,5}", part) is None or not 1 <= int(part) <= _MAX_PORT for part in value
        ):
            raise ValueError("must be a list of ports such as 443,8443")
        return value

    @property
    def allowed_webhook_ports(self) -> frozenset[int]:
        """Return the ports that webhooks may use; empty means all."""
        return frozenset(map(int, self.webhook_ports))

    @field_validator("host_tokens")
    @classmethod
    def _check_host_tokens(cls, value: SecretStr | None) -> SecretStr | None:
        """Raise ValueError unless every part is HOST=TOKEN."""
        if value is not None:
            parse_host_tokens(value.get_secret_value())
        return value

    @property
    def tokens_of_hosts(self) -> dict[str, str]:
        """Return the operator's tokens for code hosts, by the host that each is sent to."""
        return {} if self.host_tokens is None else parse_host_tokens(self.host_tokens.get_secret_value())

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Return the host and port of GET /metrics; None if it is not served."""
        return None if self.metrics_listen is None else _split_address(self.metrics_listen)

    @property
    def github_host(self) -> str:
        """Return the host of the web pages that belong to the API, such as `github.com`."""
        host = urlsplit(self.github_api_url).netloc.lower()
        return host.removeprefix("api.") if host == "api.github.com" or host.endswith(".ghe.com") else host

    @property
    def source_limits(self) -> SourceLimits:
        """Return the limits of each source."""
        return SourceLimits(
            seconds=self.max_source_seconds,
            memory=self.max_source_memory_mb * MEGA,
            disk=self.max_source_disk_mb * MEGA,
            total_disk=self.max_work_disk_mb * MEGA,
            findings=self.max_findings_per_source,
        )

    @property
    def secret_key_file(self) -> Path:
        """Return the file in the data folder that holds the operator's key if no setting does."""
        return self.data_dir / "secret.key"


def _split_address(text: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[IPv6 address]:port`; raise ValueError for another text."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > _MAX_PORT:
        raise ValueError("must be HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464")
    if found[1] is not None:
        ipaddress.IPv6Address(found[1])
    return found[1] or found[2], int(found[3])


def parse_host_tokens(text: str) -> dict[str, str]:
    """Return tokens by host from a list of HOST=TOKEN; raise ValueError, without the text, for another."""
    tokens: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, equals, token = part.partition("=")
        if not equals or not token.isprintable() or not re.fullmatch(r"[A-Za-z0-9.-]+(?::\d{1,5})?", host):
            raise ValueError("must be a list of HOST=TOKEN such as gitlab.com=TOKEN")
        tokens[host.lower()] = token
    return tokens


def is_loopback(host: str) -> bool:
    """Whether the host is `localhost` or a loopback IP address, with or without brackets."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
