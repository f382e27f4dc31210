"""Scans of folders: special files, links, odd names, ignored paths and hostile archives."""

import gzip
import io
import os
import socket
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from tests.sources.conftest import Outcrop, Scan, token, without_override
from tests.support.growth import grows_linearly

FIRST, SECOND, THIRD = token("first"), token("second"), token("third")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one file that contains FIRST."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text(f"x\n {FIRST}\n")
    return folder


# Files, links and special files


def test_a_finding_in_a_folder_has_path_line_and_column(folder: Path, scan: Scan) -> None:
    found = scan(folder).of(FIRST)
    assert (found["file_path"], found["line_number"], found["column"], found["source_type"]) == (
        "a",
        2,
        2,
        "repo",
    )


def test_a_byte_order_mark_is_no_column(folder: Path, scan: Scan) -> None:
    (folder / "a").write_bytes(b"\xef\xbb\xbf" + f"x = {FIRST}\n\nx = {SECOND}\n".encode())
    assert [(found["line_number"], found["column"]) for found in scan(folder).findings] == [(1, 5), (3, 5)]


def test_a_work_tree_without_its_git_folder_is_a_gap(folder: Path, scan: Scan) -> None:
    (folder / ".git").write_text("gitdir: /nowhere/.git/worktrees/x\n")
    scanned = scan(folder)
    assert scanned.secrets == [FIRST]
    assert scanned.has_gap("names a git folder that does not exist")


def test_an_empty_folder_has_no_findings(tmp_path: Path, outcrop: Outcrop) -> None:
    (tmp_path / "empty").mkdir()
    ran = outcrop("scan", "--json", "empty")
    assert (ran.code, ran.findings, ran.err) == (0, [], "")


def test_files_without_permission_are_gaps(folder: Path, outcrop: Outcrop) -> None:
    (folder / "secret").write_text(SECOND)
    (folder / "secret").chmod(0)
    (folder / "closed").mkdir(mode=0)
    ran = outcrop("scan", "--json", folder, before=without_override)
    if len(ran.findings) > 1:
        pytest.skip("everything can be read here")
    assert ran.code == 1
    assert [finding["file_path"] for finding in ran.findings] == ["a"]
    assert ran.err.splitlines() == [
        "not scanned: closed: permission denied",
        "not scanned: secret: permission denied",
    ]


@pytest.mark.parametrize("mode", [0, 0o111, 0o444])
def test_a_target_without_permission_is_one_line_of_error(folder: Path, outcrop: Outcrop, mode: int) -> None:
    (folder.parent / "beside").write_text(SECOND)
    folder.chmod(mode)
    ran = outcrop("scan", "--json", "--no-validate", folder, "beside", before=without_override)
    folder.chmod(0o700)
    if len(ran.findings) > 1:
        pytest.skip("everything can be read here")
    assert [finding["file_path"] for finding in ran.findings] == ["beside"]
    # With 0o444 the folder can be listed, but its files cannot be read.
    expected = {0o444: (1, "not scanned: a: permission denied\n")}
    assert (ran.code, ran.err) == expected.get(mode, (2, f"outcrop: {folder}: permission denied\n"))


def test_pipes_sockets_and_devices_are_gaps_and_do_not_hang(
    folder: Path, outcrop: Outcrop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    os.mkfifo("pipe")
    expected = ["not scanned: pipe: not a regular file", "not scanned: socket: not a regular file"]
    try:
        os.mknod("device", 0o020600, os.makedev(1, 5))  # /dev/zero
        expected.insert(0, "not scanned: device: not a regular file")
    except PermissionError:
        pass
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        ran = outcrop("scan", "--json", folder)
    assert ran.code == 1
    assert ran.err.splitlines() == expected


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "/dev/null"])
def test_a_target_that_is_not_a_regular_file_is_refused_at_once(
    folder: Path, outcrop: Outcrop, name: str
) -> None:
    os.mkfifo(folder / "pipe")
    ran = outcrop("scan", "--json", folder / name)
    assert ran.code == 2
    assert ran.err == f"outcrop: {folder / name}: not a regular file\n"


def test_ignore_files_that_are_pipes_do_not_hang(folder: Path, outcrop: Outcrop) -> None:
    (folder / "deep").mkdir()
    os.mkfifo(folder / ".gitignore")
    (folder / "deep" / ".gitignore").symlink_to("/dev/zero")
    ran = outcrop("scan", "--json", "--gitignore", folder)
    assert [finding["file_path"] for finding in ran.findings] == ["a"]


def test_an_outcropignore_that_is_a_pipe_does_not_hang(folder: Path, outcrop: Outcrop) -> None:
    os.mkfifo(folder / ".outcropignore")
    assert outcrop("scan", folder).code == 1


def test_links_are_not_followed(folder: Path, scan: Scan, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text(SECOND)
    (folder / "file").symlink_to(outside / "b")
    (folder / "folder").symlink_to(outside)
    (folder / "up").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    (folder / "lost").symlink_to("/nowhere")
    scanned = scan(folder)
    assert scanned.secrets == [FIRST]
    assert scanned.gaps == []


def test_a_target_that_is_a_link_is_followed(folder: Path, scan: Scan, tmp_path: Path) -> None:
    link, folders = tmp_path / "link", tmp_path / "folders"
    link.symlink_to(folder / "a")
    folders.symlink_to(folder)
    assert scan(link).secrets == [FIRST]
    assert scan(folders).secrets == [FIRST]
    (tmp_path / "loop").symlink_to("loop")
    assert scan(tmp_path / "loop").report.failures == [
        f"{tmp_path / 'loop'}: too many levels of symbolic links"
    ]


def test_a_path_longer_than_the_system_allows_is_a_gap(folder: Path, scan: Scan) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=here)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    scanned = scan(folder)
    assert scanned.secrets == [FIRST]
    assert [why for _, why in scanned.gaps] == ["file name too long"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"a\nb", r"a\nb"), (b"\x1b[2J", r"\x1b[2J"), (b"\xff\xfe", r"\xff\xfe"), (b"-x", "-x")],
)
def test_a_name_of_any_bytes_is_shown_on_one_line(folder: Path, scan: Scan, name: bytes, shown: str) -> None:
    (folder / os.fsdecode(name)).write_text(SECOND)
    assert scan(folder).of(SECOND)["file_path"] == shown


@pytest.mark.parametrize("last", ["plain", b"\xff"])
def test_the_name_of_a_target_may_have_any_bytes(folder: Path, scan: Scan, last: str | bytes) -> None:
    odd = folder.with_name(os.fsdecode(last))
    folder.rename(odd)
    assert scan(odd).secrets == [FIRST]


# Targets


def test_a_missing_target_is_one_line_of_error_and_the_others_are_scanned(
    folder: Path, outcrop: Outcrop
) -> None:
    (folder.parent / "single").write_text(SECOND)
    ran = outcrop("scan", "--json", "nowhere", folder, "gone", "single")
    assert ran.code == 2
    assert [finding["file_path"] for finding in ran.findings] == ["a", "single"]
    assert (
        ran.err == "outcrop: nowhere: no such file or directory\noutcrop: gone: no such file or directory\n"
    )


def test_a_target_without_a_name_is_not_the_current_folder(folder: Path, outcrop: Outcrop) -> None:
    ran = outcrop("scan", "--json", "--no-validate", "", folder)
    assert (ran.code, ran.err) == (2, "outcrop: a target has an empty name\n")
    assert len(ran.findings) == 1


def test_a_target_with_too_long_a_name_is_one_line_of_error(folder: Path, outcrop: Outcrop) -> None:
    ran = outcrop("scan", "--json", "x" * 5_000, folder)
    assert ran.code == 2
    assert ran.err == f"outcrop: {'x' * 5_000}: file name too long\n"
    assert len(ran.findings) == 1


def test_standard_input_is_scanned(outcrop: Outcrop) -> None:
    ran = outcrop("scan", "--json", "-", given=f"\n{FIRST}\n".encode())
    assert ran.code == 1
    assert [(finding["file_path"], finding["line_number"]) for finding in ran.findings] == [("-", 2)]


def test_staged_and_since_of_a_folder_are_refused(folder: Path, outcrop: Outcrop) -> None:
    for options in (["--staged"], ["--since", "HEAD"]):
        ran = outcrop("scan", *options, folder)
        assert ran.code == 2
        assert ran.err.count("\n") == 1


def test_the_output_does_not_depend_on_the_number_of_processes(folder: Path, outcrop: Outcrop) -> None:
    for number in range(1_200):
        (folder / f"f{number}").write_text(f"{token(str(number % 40))}\n" if number % 9 == 0 else "clean\n")
    os.mkfifo(folder / "pipe")
    runs = [outcrop("scan", "--json", "--no-validate", "--jobs", jobs, folder) for jobs in ("1", "4", "4")]
    assert len({(run.code, run.out, run.err) for run in runs}) == 1
    assert len(runs[0].findings) == 135


# Large files and ignored paths


@pytest.mark.parametrize(("target", "jobs"), [(".", "3"), ("large.log", "1"), ("large.log", "2")])
def test_a_large_file_that_processes_share_has_each_value_once(
    tmp_path: Path, outcrop: Outcrop, target: str, jobs: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    filler = b"2026-11-16 nothing to see in this line\n" * 125_000  # 5 MB: three parts
    lines = [f"a {FIRST}\n", f"again {FIRST} b {SECOND}\n", f"é {THIRD}"]
    (folder / "large.log").write_bytes(filler.join(line.encode() for line in lines))
    ran = outcrop("scan", "--json", "--no-validate", "--jobs", jobs, folder / target)
    assert (ran.code, ran.err) == (1, "")
    places = [(finding["line_number"], finding["column"]) for finding in ran.findings]
    assert places == [(1, 3), (125_002, 50), (250_003, 3)], "each value once, at its first place"


def test_paths_in_the_ignore_file_are_skipped(folder: Path, scan: Scan) -> None:
    for name in ("vendor/x", "deep/vendor/y", "z.lock", "keep.lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(token(name))
    (folder / ".outcropignore").write_text("# note\nvendor/\n*.lock\n!keep.lock\n")
    assert [finding["file_path"] for finding in scan(folder).findings] == ["a", "keep.lock"]


def test_an_allowed_line_is_skipped_and_the_next_one_is_not(folder: Path, scan: Scan) -> None:
    (folder / "b").write_text(f"{SECOND}  # outcrop:allow\n{THIRD}\n")
    assert scan(folder).secrets == [FIRST, THIRD]


def test_an_allow_mark_does_not_apply_to_the_same_value_on_another_line(folder: Path, scan: Scan) -> None:
    (folder / "b").write_text(f"{SECOND}  # outcrop:allow\n{SECOND}\n")
    (folder / "c").write_text(f"{THIRD}\n{THIRD}  # outcrop:allow\n")
    assert [(finding["file_path"], finding["line_number"]) for finding in scan(folder).findings] == [
        ("a", 2),
        ("b", 2),
        ("c", 1),
    ]


def test_gitignore_files_apply_with_the_option_only(folder: Path, scan: Scan) -> None:
    for name in ("out/x", "deep/out.log", "deep/keep.log", "deep/deeper/other.log", "b.log", ".git/config"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(token(name))
    (folder / ".gitignore").write_text("/out/\n*.log\n")
    (folder / "deep" / ".gitignore").write_text("!keep.log\n")
    (folder / "deep" / "deeper" / ".gitignore").write_text("!*.log\n")
    assert len(scan(folder).findings) == 7
    assert [finding["file_path"] for finding in scan(folder, gitignore=True).findings] == [
        "a",
        "deep/deeper/other.log",
        "deep/keep.log",
    ]


def test_a_malformed_ignore_file_ignores_nothing(folder: Path, scan: Scan) -> None:
    (folder / ".gitignore").write_bytes(b"\xff\xfe\0[\n[!\n\\\n!\n")
    assert scan(folder, gitignore=True).secrets == [FIRST]


# Archives


def make_zip(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def make_tar(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture(scope="module")
def zeros() -> bytes:
    """Return a gigabyte of zeros as gzip: a part of it is compressed once, and repeated."""
    part, count, check = bytes(16 << 20), 64, 0
    compressor = zlib.compressobj(level=1, wbits=-zlib.MAX_WBITS)
    compressed = compressor.compress(part) + compressor.flush(zlib.Z_FULL_FLUSH)
    for _ in range(count):
        check = zlib.crc32(part, check)
    head, end = b"\x1f\x8b\x08" + bytes(6) + b"\xff", struct.pack("<LL", check, len(part) * count)
    return head + compressed * count + compressor.flush() + end


def gaps_beside_first(scan: Scan, folder: Path) -> list[str]:
    """Scan, check that FIRST is found, and return the reasons of the gaps."""
    scanned = scan(folder)
    assert FIRST in scanned.secrets
    return [why for _, why in scanned.gaps]


def test_values_in_archives_are_found_with_the_path_of_the_member(folder: Path, scan: Scan) -> None:
    (folder / "x.zip").write_bytes(
        make_zip({"in/b": f"\n{SECOND}\n".encode(), "t.tgz": gzip.compress(make_tar({"c": THIRD.encode()}))})
    )
    scanned = scan(folder)
    assert [finding["file_path"] for finding in scanned.findings] == ["a", "x.zip!in/b", "x.zip!t.tgz!c"]
    assert scanned.gaps == []


def test_a_gzip_bomb_is_a_gap(folder: Path, scan: Scan, zeros: bytes) -> None:
    (folder / "bomb.gz").write_bytes(zeros)
    assert gaps_beside_first(scan, folder)


def test_a_flat_zip_bomb_is_a_gap(folder: Path, scan: Scan) -> None:
    content = bytes(100 << 20)
    (folder / "bomb.zip").write_bytes(make_zip({f"f{number}": content for number in range(7)}))
    assert any("too much" in why or "beginning" in why for why in gaps_beside_first(scan, folder))


def test_a_nested_zip_bomb_is_a_gap(folder: Path, scan: Scan) -> None:
    bomb = make_zip({"zeros": bytes(64 << 20)})
    for _ in range(7):
        bomb = make_zip({f"f{number}.zip": bomb for number in range(10)})
    (folder / "bomb.zip").write_bytes(bomb)
    assert gaps_beside_first(scan, folder)


def test_an_archive_of_very_many_members_is_a_gap(folder: Path, scan: Scan) -> None:
    bomb = make_zip({f"f{number}": b"" for number in range(1_000)})
    (folder / "bomb.zip").write_bytes(make_zip({f"f{number}.zip": bomb for number in range(150)}))
    assert any("too many members" in why for why in gaps_beside_first(scan, folder))


def test_very_many_gzip_members_are_scanned_in_linear_time(folder: Path, scan: Scan) -> None:
    member = gzip.compress(b"", mtime=0)
    (folder / "many.gz").write_bytes(member * 60_000)
    assert gaps_beside_first(scan, folder) == []
    assert grows_linearly(lambda count: list(unpack_texts(member * count, UnpackBudget())), 4_000)


def test_a_tar_with_wrong_sizes_is_a_gap(folder: Path, scan: Scan) -> None:
    raw = bytearray(make_tar({"b": SECOND.encode()}))
    for number, size in enumerate(
        (
            b"77777777777\0",
            b"\x80" + b"\xff" * 11,
            b"\xff" * 12,
            b"nonsense\0\0\0\0",
            b"-1\0\0\0\0\0\0\0\0\0\0",
        )
    ):
        raw[124:136] = size
        raw[148:156] = b" " * 8
        raw[148:156] = b"%06o\0 " % sum(raw[:512])
        (folder / f"{number}.tar").write_bytes(raw)
    assert gaps_beside_first(scan, folder)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("kind", ["zip", "gz", "tar"])
def test_a_truncated_archive_is_a_gap(folder: Path, scan: Scan, kind: str, part: float) -> None:
    members = {f"f{number}": os.urandom(2_000) for number in range(5)}
    raw = {"zip": make_zip, "tar": make_tar, "gz": lambda members: gzip.compress(make_tar(members))}[kind](
        members
    )
    if kind == "tar":
        raw = raw[: 512 * 5 * 5]  # without the empty blocks at its end
    (folder / f"x.{kind}").write_bytes(raw[: int(len(raw) * part)])
    assert gaps_beside_first(scan, folder)


def test_an_encrypted_zip_is_a_gap(folder: Path, scan: Scan) -> None:
    raw = bytearray(make_zip({"b": SECOND.encode()}))
    raw[6] |= 1
    directory = struct.unpack("<I", raw[-6:-2])[0]
    raw[directory + 8] |= 1
    (folder / "x.zip").write_bytes(raw)
    assert any("b: cannot be unpacked" in why for why in gaps_beside_first(scan, folder))


def test_hostile_names_in_archives_write_no_files_and_no_escapes(folder: Path, outcrop: Outcrop) -> None:
    name = "../../\x1b[31m\nevil"
    (folder / "x.tar").write_bytes(
        make_tar({name: SECOND.encode(), "b\udcff": gzip.compress(THIRD.encode())[:-9]})
    )
    raw = bytearray(make_zip({name: b"x"}))
    raw[6] |= 1
    raw[struct.unpack("<I", raw[-6:-2])[0] + 8] |= 1
    (folder / "y.zip").write_bytes(raw)
    for kind in ("json", "sarif", "table"):
        ran = outcrop("scan", "--format", kind, folder)
        assert ran.code == 1
        assert "\x1b" not in ran.err
        assert b"\x1b" not in ran.out
        assert all(line.startswith("not scanned: ") for line in ran.err.splitlines())
    assert sorted(path.name for path in folder.parent.iterdir()) == ["folder"]
