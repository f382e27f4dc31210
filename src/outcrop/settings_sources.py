"""Read the settings from their sources, and remember where each came from.

The sources are the environment, then the file that `--env-file` names, then `outcrop.env` in the data folder.
No file of the current folder is read: it may belong to somebody else's repository.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.settings import SettingError, Settings

PREFIX = "OUTCROP_"
SETTINGS_FILE = "outcrop.env"  # in the data folder
FILE_SUFFIX = "_FILE"  # OUTCROP_SECRET_KEY_FILE names a file that contains OUTCROP_SECRET_KEY
_MAX_SECRET_BYTES = 1 << 16
_OLD_DATA_DIR = Path("~/.local/share/outcrop")


@dataclass(frozen=True)
class SettingsSource:
    """What one source sets: values and origins by argument of Settings, and names that are no setting."""

    values: dict[str, str]
    origins: dict[str, str]
    unknown: list[str]


@dataclass(frozen=True)
class LoadedSettings:
    """The settings, where each that is not a default comes from, and warnings for the operator."""

    settings: Settings
    origins: dict[str, str]  # field of Settings -> source
    warnings: list[str]


def variable(name: str) -> str:
    """Return the name of the environment variable for a field of Settings."""
    return PREFIX + name.upper().rstrip("_")


def setting_names() -> list[str]:
    """Return the names of all fields of Settings."""
    return [field.name for field in fields(Settings)]


def load_settings(env_file: Path | None = None, *, folder_in_data: str = "") -> Settings:
    """Read the settings; raise OperatorError for a wrong one."""
    return load_with_origins(env_file, folder_in_data=folder_in_data).settings


def load_with_origins(env_file: Path | None = None, *, folder_in_data: str = "") -> LoadedSettings:
    """Read the settings and where each comes from; raise OperatorError for a wrong one.

    The data folder is known before the file in it is read, so that file cannot name another one. Without a
    setting it is the default data folder, or the folder of this name in it.
    """
    sources = [_read_source(os.environ, "environment", folder=None)]
    if env_file is not None:
        if not (file := _expand_home(env_file).absolute()).exists():
            raise OperatorError(f"--env-file {env_file}: no such file")
        sources.append(_read_settings_file(file))

    warnings: list[str] = []
    given = next((source.values["data_dir"] for source in sources if "data_dir" in source.values), None)
    if given is None:
        default, note = default_data_dir(os.environ)
        warnings += [note] if note else []
        data_dir = default / folder_in_data
    else:
        data_dir = _expand_home(Path(given)).absolute()

    file = data_dir / SETTINGS_FILE
    stored = _read_settings_file(file)
    if stored.values.get("data_dir", str(data_dir)) != str(data_dir):
        raise OperatorError(
            f"{file}: OUTCROP_DATA_DIR cannot be set in this file, because the file is looked for in that"
            " folder; set it in the environment or with --env-file"
        )
    sources.append(stored)

    values = {"data_dir": str(data_dir)}
    origins: dict[str, str] = {}
    for source in reversed(sources):
        values |= source.values
        origins |= source.origins
        warnings += map(_describe_unknown, source.unknown)
    return LoadedSettings(_build_settings(values), origins, warnings)


def default_data_dir(environment: Mapping[str, str]) -> tuple[Path, str | None]:
    """Return the data folder of an installation without OUTCROP_DATA_DIR, and a note about it.

    It is `outcrop` in XDG_DATA_HOME, else in ~/.local/share. One that exists in ~/.local/share stays in use.
    """
    try:
        old: Path | None = _OLD_DATA_DIR.expanduser()
    except RuntimeError:  # a user id without a home folder, as in containers
        old = None
    base = environment.get("XDG_DATA_HOME") or ""
    if not base.startswith("/"):
        if old is None:
            raise OperatorError("this user has no home folder; set OUTCROP_DATA_DIR")
        return old, None
    new = Path(base) / "outcrop"
    if old is None or new == old or not old.exists():
        return new, None
    return old, f"the data folder is {old}, which exists, and not {new}; OUTCROP_DATA_DIR names another one"


def _read_settings_file(file: Path) -> SettingsSource:
    """Read a file of settings; relative paths start at its folder. A file that does not exist sets none."""
    content: Mapping[str, str | None] = {}
    try:
        with file.open(encoding="utf-8") as lines:
            from dotenv import dotenv_values  # noqa: PLC0415 - most commands read no such file

            content = dotenv_values(stream=lines)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"cannot read the settings in {file}: {_reason(error)}") from None
    return _read_source(content, str(file), folder=file.parent)


def _read_source(content: Mapping[str, str | None], name: str, *, folder: Path | None) -> SettingsSource:
    """Return what these variables set. An empty value counts as not set."""
    given = {key.upper(): value for key, value in content.items() if value}
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    known: set[str | None] = set()
    for field in setting_names():
        own = variable(field)
        from_file = own + FILE_SUFFIX if field in Settings.SECRET else None
        known |= {own, from_file}
        if own in given:
            if from_file in given:
                raise OperatorError(f"{own} and {from_file} are both set ({name}); set one of them")
            path = folder / _expand_home(Path(given[own])) if folder and field in Settings.PATHS else None
            values[field] = given[own] if path is None else str(path)
            origins[field] = name
        elif from_file is not None and from_file in given:
            path = (folder or Path()) / _expand_home(Path(given[from_file]))
            values[field] = _read_secret(from_file, path)
            origins[field] = f"{name}, {from_file}"
    unknown = sorted(key for key in given if key.startswith(PREFIX) and key not in known)
    return SettingsSource(values, origins, unknown)


def _read_secret(name: str, file: Path) -> str:
    """Return the content of a file that a `*_FILE` setting names, without line breaks at its end."""
    try:
        with file.open("rb") as content:
            value = content.read(_MAX_SECRET_BYTES + 1).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{name}: cannot read {file}: {_reason(error)}") from None
    if not value or len(value) > _MAX_SECRET_BYTES:
        raise OperatorError(f"{name}: {file} is {'too large' if value else 'empty'}")
    return value


def _reason(error: OSError | UnicodeDecodeError) -> str:
    """Return why a file cannot be read, without its content."""
    return (error.strerror or "").lower() if isinstance(error, OSError) else "it is not UTF-8"


def _expand_home(path: Path) -> Path:
    """Replace `~` at the start by the home folder; raise OperatorError if there is none."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise OperatorError(f"{path}: this user has no home folder") from None


def _describe_unknown(name: str) -> str:
    """Return a warning for a variable that is no setting, with the most similar one."""
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    names = [variable(field) for field in setting_names()]
    names += [variable(field) + FILE_SUFFIX for field in Settings.SECRET]
    stem = name.removesuffix(FILE_SUFFIX)  # only secrets are read from files
    similar = [stem] if stem in names else get_close_matches(name, names, n=1, cutoff=0.7)
    return f"{name} is not a setting" + (f"; did you mean {similar[0]}?" if similar else "")


def _build_settings(values: Mapping[str, str]) -> Settings:
    """Return the settings with these values. For a wrong one, raise OperatorError with its name only."""
    try:
        return Settings(**dict(values))  # type: ignore[arg-type]
    except SettingError as error:
        raise OperatorError(f"{variable(error.name)}: {error}") from None
