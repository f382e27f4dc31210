"""Files that change between listing a folder and reading them."""

import os
from pathlib import Path

import pytest

from outcrop.domain.finding import Confidence
from outcrop.sources.files import BatchResult, batch_scanner
from tests.support.rulesets import github_token, ruleset

TOKEN = f"token = {github_token('changing')}\n".encode()


def scan_files(folder: Path, sizes: dict[str, int]) -> BatchResult:
    """Scan files that had these sizes when they were listed."""
    results: list[BatchResult] = []
    base = os.fsencode(folder) + b"/"
    batch_scanner(base, ruleset(), Confidence.MEDIUM)(
        iter([[(os.fsencode(name), size) for name, size in sizes.items()]]), results.append
    )
    (result,) = results
    return result


@pytest.mark.parametrize("size", [0, 1, 5_000, 3 << 20])
def test_a_file_of_another_size_is_read_completely(tmp_path: Path, size: int) -> None:
    content = b"# a line\n" * 1_000 + TOKEN
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(TOKEN)
    result = scan_files(tmp_path, {"a": size, "b": len(TOKEN)})
    assert [path for path, _ in result.hits] == [b"a", b"b"]
    assert (result.files, result.size, result.gaps) == (2, len(content) + len(TOKEN), [])


def test_a_small_file_that_has_become_large_is_read_completely(tmp_path: Path) -> None:
    content = b"# a line\n" * 1_000_000 + TOKEN
    (tmp_path / "a").write_bytes(content)
    result = scan_files(tmp_path, {"a": 10})
    assert [path for path, _ in result.hits] == [b"a"]
    assert (result.size, result.gaps) == (len(content), [])


def test_a_pipe_folder_or_link_in_place_of_a_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "outside").write_bytes(TOKEN)
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "file").write_bytes(TOKEN)
    sizes = dict.fromkeys(["pipe", "folder", "link", "gone", "file"], len(TOKEN))
    expected = [
        (b"folder", "is a directory"),
        (b"link", "too many levels of symbolic links"),
        (b"gone", "no such file or directory"),
    ]
    try:
        os.mknod(tmp_path / "device", 0o020600, os.makedev(1, 5))  # /dev/zero
        sizes["device"] = 10
        expected.append((b"device", "not a regular file"))
    except PermissionError:
        pass
    result = scan_files(tmp_path, sizes)
    assert [path for path, _ in result.hits] == [b"file"]
    assert result.gaps == expected
