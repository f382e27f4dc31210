"""The service starts as in a container: read-only, a user id without an entry, no home folder."""

import json
from pathlib import Path

import pytest

from tests.support.container import run_like_a_container
from tests.support.rulesets import cached_in, github_token

DRIVER = Path(__file__).with_name("container_driver.py")


@pytest.mark.e2e
def test_the_service_with_the_embedded_database_runs_as_any_user(tmp_path: Path) -> None:
    writable = tmp_path / "writable"
    target = writable / "target"
    target.mkdir(parents=True)
    (target / "settings.py").write_text(f"token = '{github_token('container')}'\n")
    settings = {
        "OUTCROP_DATA_DIR": str(writable / "data"),
        "XDG_CACHE_HOME": str(cached_in(writable / "cache")),  # a volume, as in the Containerfile
        "OUTCROP_LOG_FORMAT": "json",
        "OUTCROP_METRICS_LISTEN": "127.0.0.1:0",
        "OUTCROP_VALIDATE": "off",
        "TARGET": str(target),
    }
    done = run_like_a_container(DRIVER, tmp_path, writable=writable, settings=settings)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result["surroundings"].values()) == {True}, result["surroundings"]
    assert result["list"] == [200, 0]
    assert result["scan"] == 0
    assert result["found"] == 1
    assert result["db_up"] is True
    assert all(ok for ok, _ in result["doctor"].values()), result["doctor"]
    assert result["exit"] == 0
    assert result["errors"] == []
