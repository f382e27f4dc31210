"""The trial of isolation must know everything that takes an id."""

import pytest

from prove import isolation
from prove.isolation import unknown_surface


def test_every_route_and_command_with_an_id_has_a_trial() -> None:
    assert unknown_surface() == []


def test_a_route_or_command_without_a_trial_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # A patch, and no argument: what the trial knows is its own data.
    monkeypatch.setattr(isolation, "_KINDS", {"finding", "scan", "import"})
    monkeypatch.delitem(isolation._COMMANDS, "target run")
    assert "outcrop target run" in unknown_surface()
    assert "/api/v1/incidents/{incident_id}" in unknown_surface()
