"""The tables of limits have every limit of the module, with its default."""

import re
from dataclasses import asdict, is_dataclass
from pathlib import Path

from outcrop import limits

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
UNITS = {"": 1, " MB": limits.MEGA, " MiB": 1 << 20, " KiB": 1 << 10}
ARE_UNITS = {"MEGA"}


def list_limits() -> dict[str, float]:
    """Return the limits of the module by the names that the page has."""
    found = {}
    for name, value in vars(limits).items():
        if not name.isupper() or name in ARE_UNITS:
            continue
        if is_dataclass(value) and not isinstance(value, type):
            prefix = "" if name == "SOURCE_LIMITS" else f"{name.lower()}."
            found |= {f"{prefix}{field}": float(number) for field, number in asdict(value).items()}
        else:
            found[name.lower()] = float(value)
    return found


def test_the_tables_of_limits_have_every_limit_with_its_default() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| ([\d,.]+)( MB| MiB| KiB|) \|", PAGE, re.MULTILINE)
    documented = {name: float(value.replace(",", "")) * UNITS[unit] for name, value, unit in rows}
    assert len(rows) == len(documented)
    assert documented == list_limits()
