"""`outcrop why`: the reasons for every candidate value on a line."""

import base64
import gzip
import os
import random
import re
from pathlib import Path

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner import trace
from outcrop.scanner.engine.detect import find
from outcrop.scanner.generic.score import POINTS
from outcrop.scanner.kinds.classify import KINDS
from outcrop.scanner.risk.detection import sentence_of
from outcrop.scanner.rules.example_templates import expand_template
from outcrop.services.local_scan.options import ScanOptions, TargetInfo
from outcrop.services.local_scan.why import LEFT_OUT, NO_FINDING, REPORTED, ExplainedValue, explain
from outcrop.services.local_scan.why_source import Source
from outcrop.sources.workspace import cache_folder
from tests.support.command import Ran, run
from tests.support.rulesets import ruleset

TOKEN = expand_template("ghp_{{base62 30}}{{crc32_base62}}", "why")
WRONG = TOKEN[:-3] + ("aaa" if TOKEN[-3:] != "aaa" else "bbb")


def explained(
    text: str | bytes,
    line: int = 1,
    path: str = "app/settings.env",
    confidence: Confidence = Confidence.MEDIUM,
) -> list[ExplainedValue]:
    data = text if isinstance(text, bytes) else text.encode()
    source = Source(data, path.encode(), TargetInfo("."))
    return explain(source, line, ScanOptions(ruleset(), confidence)).values


def outcrop(*arguments: str, folder: Path, stdin: bytes = b"") -> Ran:
    return run("why", *arguments, folder=folder, cache=cache_folder().parent, stdin=stdin)


def reasons_of(value: ExplainedValue) -> list[str]:
    return [reason.id for reason in value.reasons]


def test_a_checksum_decides_the_confidence_and_other_rules_lose() -> None:
    (value,) = explained(f'TOKEN = "{TOKEN}"\n')
    assert (value.outcome, value.rule, value.confidence) == (REPORTED, "github_pat_classic", Confidence.HIGH)
    assert (value.line, value.column, reasons_of(value)) == (1, 10, ["checksum"])
    assert TOKEN not in repr(value)


def test_a_wrong_checksum_lowers_and_the_asked_confidence_leaves_out() -> None:
    text = f'TOKEN = "{WRONG}"\n'
    (value,) = explained(text)
    assert (value.outcome, value.left_out_by) == (LEFT_OUT, "--confidence medium")
    assert reasons_of(value) == ["wrong checksum"]
    (value,) = explained(text, confidence=Confidence.LOW)
    assert (value.outcome, value.confidence) == (REPORTED, Confidence.LOW)


def test_a_value_found_by_its_name_shows_its_points_and_their_sum() -> None:
    (value,) = explained("DB_PASSWORD=Regen!4Kaffee\n")
    assert (value.outcome, value.rule, value.matched_text) == (REPORTED, "generic_password", "********")
    points = [reason.points or 0 for reason in value.reasons]
    assert value.reasons[-1].id == "points"
    assert points[-1] == pytest.approx(sum(points[:-1]), abs=0.2)
    assert points[-1] >= 2
    assert "password" in reasons_of(value)


def test_a_value_that_its_name_does_not_confirm_is_no_finding_and_says_why() -> None:
    (value,) = explained('token_label = "x"; secret = "Sign in to go on"\n')
    assert (value.outcome, value.rule, value.confidence) == (NO_FINDING, None, None)
    (other,) = value.others
    assert other.rule == "generic_password"
    assert other.points


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('password = "changeme"', "placeholder"),
        ('integrity_token="sha256:' + "ab12" * 16 + '"', "digest"),
        ('secret = load_secret("abcdefgh")', "call"),
    ],
)
def test_what_rejects_or_lowers_a_value_is_in_the_reasons(line: str, part: str) -> None:
    values = explained(line)
    sentences = [
        *(reason.sentence for value in values for reason in value.reasons),
        *(other.reason for value in values for other in value.others),
        *(reason.sentence for value in values for other in value.others for reason in other.points),
    ]
    assert any(part in sentence for sentence in sentences), sentences
    assert all(value.outcome != REPORTED for value in values)


def test_a_missing_companion_is_a_reason() -> None:
    rules = ruleset().rules
    rule = rules[rules.ids["akamai_client_secret"]]
    text = expand_template(rule.examples[0], "why").replace("«", "").replace("»", "")
    assert [value.outcome for value in explained(text, 2)] == [REPORTED]
    alone = re.sub("akab-", "", text)  # the host and the tokens begin with it
    others = [other for value in explained(alone, 2) for other in value.others]
    assert any(other.rule == rule.id and "companion is missing" in other.reason for other in others)


def test_a_value_in_quotes_free_code_depends_on_the_path() -> None:
    text = "password = Winterregen.Kaffee44\n"
    in_code = explained(text, path="app/main.py")
    assert all(value.outcome == NO_FINDING for value in in_code)
    in_configuration = explained(text, path="app/main.conf")
    assert [value.outcome for value in in_configuration] != [
        value.outcome for value in in_code
    ] or not in_code


def test_a_mark_in_the_line_leaves_out_this_line_only() -> None:
    text = f'a = "{TOKEN}"  # outcrop:allow\nb = "{TOKEN}"\n'
    (first,), (second,) = explained(text, 1), explained(text, 2)
    assert (first.outcome, first.left_out_by) == (LEFT_OUT, "outcrop:allow")
    assert second.outcome == REPORTED


def test_a_later_line_of_a_value_names_the_first() -> None:
    (value,) = explained(f'a = "{TOKEN}"\n\nb = "{TOKEN}"\n', 3)
    assert (value.outcome, value.line) == (REPORTED, 3)
    assert "line 1" in value.reasons[-1].sentence


def test_a_line_inside_a_value_of_several_lines_is_explained() -> None:
    body = random.Random(3).randbytes(600)
    lines = base64.encodebytes(b"\x30\x82" + body).decode().replace("\n", "")
    wrapped = "\n".join(lines[at : at + 64] for at in range(0, len(lines), 64))
    text = f"-----BEGIN PRIVATE KEY-----\n{wrapped}\n-----END PRIVATE KEY-----\n"
    assert [value.rule for value in explained(text, 4)] == [value.rule for value in explained(text, 1)]


def test_a_decoded_value_says_how_it_was_written() -> None:
    text = base64.b64encode(f'{{"token": "{TOKEN}"}}'.encode()).decode()
    (value,) = [value for value in explained(f"blob: {text}\n") if value.outcome == REPORTED]
    assert value.encoding == ("base64",)


def test_the_reasons_agree_with_the_scan_on_every_example_of_the_rules() -> None:
    examples = [
        expand_template(example, "7").replace("«", "").replace("»", "")
        for rule in ruleset().rules
        for example in rule.examples[:1]
    ]
    chance = random.Random(5)
    for example in chance.sample(examples, 60):
        for path in ("src/app.py", "deploy/values.yaml"):
            source = Source(example.encode(), path.encode(), TargetInfo("."))
            values = explain(source, None, ScanOptions(ruleset())).values
            reported = [value for value in values if value.outcome == REPORTED]
            seen = {hit.rule.id for hit in find(ruleset(), example.encode(), Confidence.MEDIUM)}
            assert {value.rule for value in reported} <= seen
            assert all(value.reasons for value in reported)
            if path.endswith(".yaml") and not any(r.depends_on_path for r in _rules_of(seen)):
                assert bool(reported) == bool(seen)


def _rules_of(ids: set[str]) -> list:
    rules = ruleset().rules
    return [rules[rules.ids[id_]] for id_ in ids]


def test_a_recording_changes_no_finding_and_nothing_is_recorded_outside_of_it() -> None:
    text = f'password = "Regen!4Kaffee"\nTOKEN = "{WRONG}"\nkey = "{TOKEN}"\n'.encode()
    plain = find(ruleset(), text, Confidence.LOW)
    with trace.recording() as recorded:
        traced = find(ruleset(), text, Confidence.LOW)
    assert [(hit.start, hit.rule.id, hit.confidence) for hit in traced] == [
        (hit.start, hit.rule.id, hit.confidence) for hit in plain
    ]
    count = len(recorded.steps)
    find(ruleset(), text, Confidence.LOW)
    assert (len(recorded.steps), trace.active) == (count, None)


def test_what_is_stored_has_no_part_of_the_value_and_every_reason_has_a_sentence() -> None:
    text = (
        f'password = "Regen!4Kaffee"\nTOKEN = "{WRONG}"\nkey = "{TOKEN}"\nDB_PASSWORD="changeme"\n'.encode()
    )
    for hit in find(ruleset(), text, Confidence.LOW):
        assert hit.reason_ids
        assert reveal(hit.secret) not in repr(hit.reason_ids)
    assert all(sentence_of(str(reason)) for reason in POINTS)
    assert all(kind.reason in sentence_of(f"kind:{id_}") for id_, kind in KINDS.items())


# --- The command


def test_the_json_has_the_documented_fields(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text(f"x\nTOKEN={TOKEN}\n")
    ran = outcrop("a.env:2", "--json", folder=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert TOKEN not in ran.out
    assert set(ran.json) == {"path", "line", "min_confidence", "values", "near_rules"}
    (value,) = ran.json["values"]
    assert set(value) == {
        *("line", "column", "outcome", "left_out_by", "rule", "name", "confidence", "matched_text"),
        *("encoding", "context", "reasons", "other_rules"),
    }
    assert set(value["reasons"][0]) == {"id", "points", "sentence"}
    assert (ran.json["path"], ran.json["line"], value["outcome"]) == ("a.env", 2, "reported")


def test_standard_input_has_a_line_or_all(tmp_path: Path) -> None:
    text = f"first\nTOKEN={TOKEN}\n".encode()
    named = outcrop("-:2", folder=tmp_path, stdin=text)
    all_ = outcrop("-", folder=tmp_path, stdin=text)
    assert (named.code, all_.code) == (0, 0)
    assert named.out.splitlines()[0] == all_.out.splitlines()[0]
    assert named.out.startswith("-:2:7: ")
    assert "no candidate value" in outcrop("-:1", folder=tmp_path, stdin=text).out
    assert TOKEN not in named.out


def test_files_of_the_source_and_options_leave_a_value_out(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text(f"TOKEN={TOKEN}\n")
    (tmp_path / ".outcropignore").write_text("a.env\n")
    assert "left out by .outcropignore" in outcrop("a.env:1", folder=tmp_path).out
    assert ": reported, high" in outcrop("a.env:1", "--ignore-marks", folder=tmp_path).out
    (tmp_path / ".outcropignore").write_text("")
    scanned = run("scan", "--no-validate", "--json", "a.env", folder=tmp_path, cache=cache_folder().parent)
    (tmp_path / "known.json").write_text(scanned.out)
    assert "left out by --baseline" in outcrop("a.env:1", "--baseline", "known.json", folder=tmp_path).out


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("a.env", "names no line"),
        ("", "names no line"),
        (":1", "names no line"),
        ("a.env:", "names no line"),
        ("a.env:x", "names no line"),
        ("a.env:-1", "names no line"),
        ("a.env:१", "names no line"),
        ("a.env:0", "counted from 1"),
        ("a.env:3", "has no line 3, it has 2 lines"),
        ("a.env:999999999", "has no line"),
        ("b.env:1", "no such file"),
        ("folder:1", "is a folder"),
        ("binary:1", "is binary"),
        ("packed.gz:1", "archive"),
        ("empty:1", "has no line 1, it has 0 lines"),
        ("pipe:1", "not a regular file"),
        ("x" * 5_000 + ":1", "too long"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(tmp_path: Path, place: str, part: str) -> None:
    (tmp_path / "a.env").write_text("x\ny\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\1\2\0\n")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b"x\n"))
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    ran = outcrop(place, folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("outcrop: ")
    assert ran.err.count("\n") == 1
    assert part in ran.err


def test_a_column_after_the_line_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text(f"TOKEN={TOKEN}\n")
    assert outcrop("a.env:1:7", folder=tmp_path).out == outcrop("a.env:1", folder=tmp_path).out
