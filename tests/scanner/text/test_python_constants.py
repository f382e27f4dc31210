"""Constants of compiled Python files of several versions, and files that are no such thing."""

import base64
import py_compile
import random
from pathlib import Path

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import needs_unpacking
from tests.support.rulesets import github_token, ruleset

TOKEN = github_token("pyc")
# KEY = "a text"
# def f(x, y=(1.5, None)):
#     return {"other": x}
COMPILED = {
    "2.7": "A/MNCreB/mpjAAAAAAAAAAACAAAAQAAAAHMWAAAAZAAAWgAAZAQAZAIAhAEAWgIAZAMAUygFAAAAcwYAAABhIHRleHRnAAAAAAAA+D9jAg"
    "AAAAIAAAADAAAAQwAAAHMLAAAAaQEAfAAAZAEANlMoAgAAAE50BQAAAG90aGVyKAAAAAAoAgAAAHQBAAAAeHQBAAAAeSgAAAAAKAAAAABzBAAAAG0u"
    "cHl0AQAAAGYCAAAAcwIAAAAAAU4oAgAAAGcAAAAAAAD4P04oAwAAAHQDAAAAS0VZdAQAAABOb25lUgMAAAAoAAAAACgAAAAAKAAAAABzBAAAAG0ucHl0"
    "CAAAADxtb2R1bGU+AQAAAHMCAAAABgE=",
    "3.6": "Mw0NCriB/mpAAAAA4wAAAAAAAAAAAAAAAAMAAABAAAAAcxIAAABkAFoAZAZkA2QEhAFaAWQCUwApB3oGYSB0ZXh05wAAAAAAAPg/TmMCAAAA"
    "AAAAAAIAAAACAAAAQwAAAHMIAAAAZAF8AGkBUwApAk7aBW90aGVyqQApAtoBeNoBeXIDAAAAcgMAAAD6BG0ucHnaAWYCAAAAcwIAAAAAAXIHAAAAqQJy"
    "AQAAAE4pAXIIAAAAKQJaA0tFWXIHAAAAcgMAAAByAwAAAHIDAAAAcgYAAADaCDxtb2R1bGU+AQAAAHMCAAAABAE=",
    "3.7": "Qg0NCgAAAAC4gf5qQAAAAOMAAAAAAAAAAAAAAAADAAAAQAAAAHMSAAAAZABaAGQFZAJkA4QBWgFkBFMAKQZ6BmEgdGV4dKkCZwAAAAAAAPg/"
    "TmMCAAAAAAAAAAIAAAACAAAAQwAAAHMIAAAAZAF8AGkBUwApAk7aBW90aGVyqQApAtoBeNoBeXIDAAAAcgMAAAD6BG0ucHnaAWYCAAAAcwIAAAAAAXIH"
    "AAAATikBcgEAAAApAloDS0VZcgcAAAByAwAAAHIDAAAAcgMAAAByBgAAANoIPG1vZHVsZT4BAAAAcwIAAAAEAQ==",
    "3.10": "bw0NCgAAAAC4gf5qQAAAAOMAAAAAAAAAAAAAAAAAAAAAAwAAAEAAAABzEgAAAGQAWgBkBWQCZAOEAVoBZARTACkGegZhIHRleHSpAmcAAAAAAAD4"
    "P05jAgAAAAAAAAAAAAAAAgAAAAIAAABDAAAAcwgAAABkAXwAaQFTACkCTtoFb3RoZXKpACkC2gF42gF5cgMAAAByAwAAAPoEbS5wedoBZgIAAABzAgAAAAgB"
    "cgcAAABOKQFyAQAAACkCWgNLRVlyBwAAAHIDAAAAcgMAAAByAwAAAHIGAAAA2gg8bW9kdWxlPgEAAABzBAAAAAQADgE=",
    "3.13": "8w0NCgAAAAC4gf5qQAAAAOMAAAAAAAAAAAAAAAACAAAAAAAAAPMSAAAAlQBTAHIAUwNTARoAagFyAWcCKQR6BmEgdGV4dGMCAAAAAAAAAAAAAAAC"
    "AAAAAwAAAPMKAAAAlQBTAVUAMAEkACkCTtoFb3RoZXKpACkC2gF42gF5cwIAAAAgINoEbS5wedoBZnIIAAAAAgAAAHMMAAAAgADYDBOQUYg80AQX8wAAAABO"
    "KQEpAmcAAAAAAAD4P04pAtoDS0VZcggAAAByBAAAAHIJAAAAcgcAAADaCDxtb2R1bGU+cgsAAAABAAAAcw8AAADwAwEBAdgGDoAD9QIBARhyCQAAAA==",
}
HEADER = b"\xa7\r\r\n" + bytes(12)
CODE = b"\xe3" + bytes(20)


@pytest.mark.parametrize("version", COMPILED)
def test_the_strings_of_each_version_are_lines(version):
    data = base64.b64decode(COMPILED[version])
    assert needs_unpacking(data)
    ((name, text),) = unpack_texts(data, budget := UnpackBudget())
    assert {b'"a text"', b'"other"', b'"KEY"', b'"f"', b'"<module>"'} <= set(text.splitlines())
    assert (name, budget.gaps) == ("", [])


def test_a_credential_in_a_compiled_file_is_found(tmp_path):
    source = tmp_path / "m.py"
    source.write_text(
        'class A:\n    def f(self, *, y="é\\n"):\n'
        f'        return {{"x": b"{TOKEN}", "é{TOKEN[:3]}": 10**40}}\n'
    )
    data = Path(py_compile.compile(str(source), str(tmp_path / "m.pyc"))).read_bytes()
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert [(name, reveal(hit.secret)) for name, hit in found.hits] == [("", TOKEN)]
    assert found.gaps == []
    assert '"é\\n"'.encode() in dict(unpack_texts(data, UnpackBudget()))[""].splitlines()


@pytest.mark.parametrize(
    "objects",
    [
        CODE + b"s\xff\xff\xff\x7f",  # a string longer than the file
        CODE + b"(\xff\xff\xff\x7f",
        CODE + b"(\xff\xff\xff\xff",
        CODE + b"?" * 30,
        CODE,
        CODE + b")\1" * 5_000 + b"N",  # nested too deeply
        CODE + b"{" * 5_000,
    ],
)
def test_damaged_and_nested_files_are_a_gap_and_scanned_as_they_are(objects):
    data = HEADER + objects
    assert list(unpack_texts(data, budget := UnpackBudget())) == [("", data)]
    assert len(budget.gaps) == 1


def test_what_was_read_before_the_damage_is_kept():
    data = base64.b64decode(COMPILED["3.10"])
    ((_, text),) = unpack_texts(data[:-60], budget := UnpackBudget())
    assert b'"a text"' in text
    assert budget.gaps == ["compiled Python: damaged, only a part was read"]


def test_random_damage_never_raises():
    chance = random.Random(7)
    for compiled in COMPILED.values():
        for _ in range(200):
            data = bytearray(base64.b64decode(compiled))
            for _ in range(3):
                data[chance.randrange(17, len(data))] = chance.randrange(256)
            list(unpack_texts(bytes(data), UnpackBudget()))
