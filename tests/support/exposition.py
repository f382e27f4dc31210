"""Read the answer of GET /metrics."""

import asyncio
import urllib.request
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Served:
    """The samples of one answer."""

    values: dict[tuple[str, frozenset[tuple[str, str]]], float]
    types: dict[str, str]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a series; None if it is not there."""
        return self.values.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of all series with this name that have these labels."""
        wanted = frozenset(labels.items())
        return sum(value for (other, own), value in self.values.items() if other == name and wanted <= own)

    @property
    def labels(self) -> dict[str, set[str]]:
        """The names of the labels of each series name."""
        found: dict[str, set[str]] = {}
        for name, labels in self.values:
            found.setdefault(name, set()).update(label for label, _ in labels)
        return found

    @property
    def label_values(self) -> set[str]:
        """All values of all labels."""
        return {value for _, labels in self.values for _, value in labels}


def parse(text: str) -> Served:
    """Return the samples of an answer."""
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    values = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(values) == len(samples)
    return Served(values, {family.name: family.type for family in families})


def scrape(port: int) -> Served:
    """Return what the service answers on this port of loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        return parse(response.read().decode())


async def exchange(port: int, request: bytes) -> bytes:
    """Send bytes to a port of loopback and return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        return await reader.read()
    except ConnectionError:  # closed before all was sent
        return b""
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
