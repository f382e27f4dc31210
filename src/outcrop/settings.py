"""All settings with their types, defaults and checks.

`settings_sources` reads them once; callers pass them on as plain values.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from outcrop.domain.proxy_address import ProxyAddress
from outcrop.domain.secret import KeepSecrets
from outcrop.limits import MEGA, SOURCE_LIMITS, SourceLimits

_MAX_PORT = 65535
_NOTICE_CHARACTERS = 300  # characters
_DEFAULT_DATA_DIR = Path("~/.local/share/outcrop")
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


class SettingError(ValueError):
    """A setting has a wrong value."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name  # of the field


class SecretText:
    """A setting that is secret: str() and repr() show it masked."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return "SecretText('**********')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def get_secret_value(self) -> str:
        """Return the text."""
        return self._text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings; docs/operating.md describes each. Raise SettingError for a wrong value.

    Values may be texts, as in the environment. The class is not one of pydantic, whose import takes as long
    as the rest of a short command.
    """

    # Printed masked. Each can also be read from a file: OUTCROP_SECRET_KEY_FILE=/run/secrets/key
    SECRET: ClassVar[tuple[str, ...]] = (
        "database_url",
        "secret_key",
        "egress_proxy",
        "github_token",
        "host_tokens",
        "api_key",
    )
    PATHS: ClassVar[tuple[str, ...]] = ("data_dir", "postgres_bin", "egress_ca_file", "rules")

    data_dir: Path = _DEFAULT_DATA_DIR
    database_url: str | None = None
    postgres_bin: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    base_url: str | None = None
    secret_key: SecretText | None = None
    rate_limit_per_minute: int | None = None
    trusted_proxies: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    egress_allow: tuple[str, ...] = ()
    egress_ca_file: Path | None = None
    egress_connect_to: tuple[str, ...] = ()
    egress_source: str | None = None
    egress_closed: bool = False
    egress_proxy: SecretText | None = None
    webhook_ports: tuple[str, ...] = ()
    github_api_url: str = "https://api.github.com"
    github_token: SecretText | None = None
    host_tokens: SecretText | None = None
    rules: Path | None = None
    validate_: Literal["off", "safe", "full"] = "safe"
    stale_after_days: int = 30
    keep_secrets: KeepSecrets | None = None
    max_source_seconds: int = int(SOURCE_LIMITS.seconds)
    max_source_memory_mb: int = SOURCE_LIMITS.memory // MEGA
    max_source_disk_mb: int = SOURCE_LIMITS.disk // MEGA
    max_work_disk_mb: int = SOURCE_LIMITS.total_disk // MEGA
    max_findings_per_source: int = SOURCE_LIMITS.findings
    import_max_mb: int = 256
    url: str | None = None
    api_key: SecretText | None = None
    notice: str | None = None
    metrics_listen: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        """Convert and check every value that is not the default."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in self.PATHS or (value is not None and value != field.default):
                try:
                    object.__setattr__(self, field.name, _CONVERSIONS[field.name](value))
                except (ValueError, TypeError) as error:
                    raise SettingError(field.name, str(error)) from None

    @property
    def allowed_webhook_ports(self) -> frozenset[int]:
        """Return the ports that webhooks may use; empty means all."""
        return frozenset(map(int, self.webhook_ports))

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


# --- Conversions of the values


def _to_text(value: Any) -> str:
    """Return a text; raise ValueError for anything else."""
    if not isinstance(value, str):
        raise TypeError("must be a text")
    return value


def _to_secret(value: Any) -> SecretText:
    """Return a secret text."""
    return value if isinstance(value, SecretText) else SecretText(_to_text(value))


def _to_path(value: Any) -> Path | None:
    """Return an absolute path, with `~` expanded."""
    return None if value is None else Path(value).expanduser().absolute()


def _to_list(value: Any) -> tuple[str, ...]:
    """Return the parts of a text between commas that are not empty."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


def _to_bool(value: Any) -> bool:
    """Return the value of a switch."""
    text = str(value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise ValueError("must be true or false")
    return text in _TRUE


def _to_number(least: int, most: int | None = None) -> Callable[[Any], int]:
    """Return a conversion to a number of this range."""

    def convert(value: Any) -> int:
        text = str(value).strip()
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,15}", text) else None
        if number is None or number < least or (most is not None and number > most):
            upper = f" and at most {most}" if most is not None else ""
            raise ValueError(f"must be a number of at least {least}{upper}")
        return number

    return convert


def _to_choice(*choices: str) -> Callable[[Any], str]:
    """Return a conversion to one of these texts."""

    def convert(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
        return str(value)

    return convert


def _to_member(kind: type[StrEnum]) -> Callable[[Any], StrEnum]:
    """Return a conversion to a member of an enumeration."""
    choose = _to_choice(*kind)
    return lambda value: kind(choose(value))


def _to_base_url(value: Any) -> str:
    """Accept an https URL, or http on loopback, without query and fragment; drop a final slash."""
    parts = urlsplit(_to_text(value))
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be an address such as https://outcrop.example.com")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("plain http is accepted on a loopback address only")
    return str(value).rstrip("/")


def _to_github_api_url(value: Any) -> str:
    """Accept an https URL, or plain http on loopback; drop a final slash."""
    parts = urlsplit(_to_text(value))
    if not parts.hostname or (
        parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname))
    ):
        raise ValueError("must be an https address such as https://api.github.com or https://HOST/api/v3")
    return str(value).rstrip("/")


def _to_proxy(value: Any) -> SecretText | None:
    """Raise ValueError unless the value is the address of a proxy; an empty one is none."""
    secret = _to_secret(value)
    if not secret.get_secret_value():
        return None
    ProxyAddress.parse(secret.get_secret_value())
    return secret


def _to_networks(value: Any) -> tuple[str, ...]:
    """Raise ValueError unless every part is an IP network or address."""
    parts = _to_list(value)
    for part in parts:
        ipaddress.ip_network(part, strict=False)
    return parts


def _to_connections(value: Any) -> tuple[str, ...]:
    """Raise ValueError unless every part is `host:port=address:port`."""
    parts = _to_list(value)
    for part in parts:
        if not re.fullmatch(r"[^:=]+:\d{1,5}=(?:\[[0-9A-Fa-f:.]+\]|[0-9.]+):\d{1,5}", part):
            raise ValueError("must be a list of host:port=address:port")
    return parts


def _to_metrics_listen(value: Any) -> str:
    """Raise ValueError unless the text is `host:port`; an IPv6 address is in brackets."""
    _split_address(_to_text(value))
    return str(value)


def _to_ports(value: Any) -> tuple[str, ...]:
    """Raise ValueError unless every part is a port."""
    parts = _to_list(value)
    if any(re.fullmatch(r"[0-9]{1,5}", part) is None or not 1 <= int(part) <= _MAX_PORT for part in parts):
        raise ValueError("must be a list of ports such as 443,8443")
    return parts


def _to_host_tokens(value: Any) -> SecretText:
    """Raise ValueError unless every part is HOST=TOKEN."""
    secret = _to_secret(value)
    parse_host_tokens(secret.get_secret_value())
    return secret


def _to_notice(value: Any) -> str:
    """Raise ValueError for a text that is too long."""
    if len(_to_text(value)) > _NOTICE_CHARACTERS:
        raise ValueError(f"must have at most {_NOTICE_CHARACTERS} characters")
    return str(value)


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(Settings.PATHS, _to_path),
    **dict.fromkeys(("database_url", "host", "url"), _to_text),
    **dict.fromkeys(("secret_key", "github_token", "api_key"), _to_secret),
    **dict.fromkeys(("trusted_proxies", "egress_allow"), _to_networks),
    **dict.fromkeys(("max_source_seconds", "max_source_disk_mb", "max_work_disk_mb"), _to_number(1)),
    "port": _to_number(0, _MAX_PORT),
    "base_url": _to_base_url,
    "rate_limit_per_minute": _to_number(0, 1_000_000),
    "cors_origins": _to_list,
    "egress_connect_to": _to_connections,
    "egress_source": lambda value: str(ipaddress.ip_address(value)),
    "egress_closed": _to_bool,
    "egress_proxy": _to_proxy,
    "webhook_ports": _to_ports,
    "github_api_url": _to_github_api_url,
    "host_tokens": _to_host_tokens,
    "validate_": _to_choice("off", "safe", "full"),
    "stale_after_days": _to_number(1, 3650),
    "keep_secrets": _to_member(KeepSecrets),
    "max_source_memory_mb": _to_number(300),
    "max_findings_per_source": _to_number(1),
    "import_max_mb": _to_number(1, 100_000),
    "notice": _to_notice,
    "metrics_listen": _to_metrics_listen,
    "log_level": _to_choice("debug", "info", "warning", "error"),
    "log_format": _to_choice("text", "json"),
}
