"""`outcrop scan` of container images in OCI layout folders."""

import gzip
import hashlib

import zstandard

from tests.scanner.text.test_archives import tarred
from tests.support.command import run
from tests.support.rulesets import cached_in, github_token


def test_every_layer_of_an_image_layout_is_scanned_also_what_a_later_one_deletes(tmp_path):
    """Write an OCI layout folder: a gzip layer with two files, and a zstd layer that deletes them."""
    first = tarred({"etc/app.env": f"TOKEN={github_token('layer 1')}\n".encode(), "etc/other.env": b"x"})
    token = github_token("layer 2").encode()
    second = tarred({"etc/.wh.app.env": b"", "srv/.wh..wh..opq": b"", "srv/b.env": token})
    blobs = tmp_path / "image" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    (tmp_path / "image" / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    names = []
    for content in (gzip.compress(first), zstandard.ZstdCompressor().compress(second), b'{"config": {}}'):
        names.append(hashlib.sha256(content).hexdigest())
        (blobs / names[-1]).write_bytes(content)
    bomb = zstandard.ZstdCompressor().compress(bytes(160 << 20))
    (blobs / hashlib.sha256(bomb).hexdigest()).write_bytes(bomb)
    ran = run(
        "scan",
        "image",
        "--json",
        "--no-validate",
        "--jobs",
        "1",
        folder=tmp_path,
        cache=cached_in(tmp_path / "cache"),
    )
    assert {finding["file_path"] for finding in ran.json} == {
        f"blobs/sha256/{names[0]}!etc/app.env",
        f"blobs/sha256/{names[1]}!srv/b.env",
    }
    assert ran.code == 1
    assert "too large, only the beginning was read" in ran.err
