"""The table of limits has every limit of a source, with its default."""

import re
from dataclasses import asdict
from pathlib import Path

from outcrop.limits import CLIENT_BYTES_PER_SECOND, CLIENT_SECONDS, MEGA, SOURCE_LIMITS

TABLE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
UNITS = {"": 1, " MB": MEGA, " MiB": 1 << 20}


def test_the_table_of_limits_has_every_limit_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,.]+)( MB| MiB|) \|", TABLE, re.MULTILINE)
    documented = {name: float(value.replace(",", "")) * UNITS[unit] for name, value, unit in rows}
    assert documented == {name: float(value) for name, value in asdict(SOURCE_LIMITS).items()}


def test_the_page_names_the_rate_of_clients() -> None:
    text = " ".join(TABLE.split())
    assert f"slower than {CLIENT_BYTES_PER_SECOND:,} bytes a second is disconnected" in text
    assert f"{CLIENT_SECONDS:.0f} seconds late" in text
