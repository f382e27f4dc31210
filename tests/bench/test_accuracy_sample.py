"""The split of the repositories, and the drawing of findings and files to label."""

from collections import Counter
from dataclasses import replace

import pytest

from bench.accuracy.agreement import draw_only_others, group_places, is_reported
from bench.accuracy.files import is_configuration
from bench.accuracy.repositories import ListedRepository, half_of, locate_repositories, read_list
from bench.accuracy.sample import draw, draw_second, shape_of, share_out, stratum_of
from bench.accuracy.scans import Reported
from bench.accuracy.tree import TreeFile

KINDS = 12


def findings(repo, count, rule="generic_password", confidence="medium"):
    return [
        Reported(repo, f"src/file{number}.py", number + 1, rule, confidence, f"value-{number}-x")
        for number in range(count)
    ]


def test_the_list_has_at_least_three_repositories_of_each_kind():
    listed = read_list()
    kinds = Counter(repository.kind for repository in listed)
    assert len(listed) == len({repository.repo for repository in listed}) >= 48
    assert len(kinds) == KINDS
    assert min(kinds.values()) >= 3
    assert all(len(repository.commit) == 40 for repository in listed)
    assert len({(repository.kind, repository.half) for repository in listed}) == 2 * KINDS


def test_the_half_is_the_first_hex_digit_of_the_sha_256_of_the_name():
    assert half_of("BookStackApp/BookStack") == "set aside"  # b…
    assert half_of("healthchecks/healthchecks") == "tuning"  # 3…


def test_a_repository_is_a_bare_one_or_a_folder_with_exactly_one(tmp_path):
    listed = [ListedRepository(f"o/{name}", "0" * 40, "web") for name in ("bare", "inner", "two", "absent")]
    for path in ("o+bare", "o+inner/any-name", "o+two/first", "o+two/second"):
        (tmp_path / path / "objects").mkdir(parents=True)
        (tmp_path / path / "HEAD").touch()
    found = {repository.repo: path for repository, path in locate_repositories(listed, tmp_path)}
    assert found == {
        "o/bare": tmp_path / "o+bare",
        "o/inner": tmp_path / "o+inner" / "any-name",
        "o/two": None,
        "o/absent": None,
    }


def test_all_findings_of_a_small_repository_are_drawn():
    assert len(draw(findings("o/small", 60))) == 60


def test_of_a_large_repository_some_of_each_rule_are_drawn():
    reported = findings("o/large", 500) + findings("o/large", 4, rule="jwt", confidence="high")
    drawn = Counter(found.rule for found in draw(reported))
    assert drawn == {"generic_password": 15, "jwt": 4}


def test_within_a_rule_the_strata_get_equal_parts():
    rare = [replace(found, confidence="high") for found in findings("o/large", 5)]
    drawn = draw([*findings("o/large", 500)[5:], *rare])
    assert Counter(stratum_of(found)[2] for found in drawn) == {"medium": 10, "high": 5}


def test_the_drawing_does_not_depend_on_the_order_and_other_repositories():
    reported = findings("o/large", 200)
    drawn = set(draw(reported))
    assert set(draw(reversed(reported))) == drawn
    assert {found for found in draw(findings("o/other", 90) + reported) if found.repo == "o/large"} == drawn


def test_about_one_in_eight_is_read_a_second_time():
    drawn = findings("o/large", 2_000)
    assert 0.1 < len(draw_second(drawn)) / len(drawn) < 0.14
    assert set(draw_second(drawn[:500])) == set(draw_second(drawn)) & set(drawn[:500])


@pytest.mark.parametrize(
    ("total", "sizes", "shares"),
    [
        (10, {"a": 100, "b": 2, "c": 100}, {"a": 4, "b": 2, "c": 4}),
        (10, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (1, {"a": 5, "b": 5}, {"a": 0, "b": 1}),
    ],
)
def test_a_total_is_shared_out_equally_up_to_the_sizes(total, sizes, shares):
    assert share_out(total, sizes) == shares


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("-----BEGIN " + "PRIVATE KEY-----\nMII", "pem"),
        ("https://example.com/x", "address"),
        ("0" * 8 + "-0000-0000-0000-" + "0" * 12, "uuid"),
        ("a" * 40, "hex"),
        ("Forgot password", "words"),
        ("p@ss1", "short"),
        ("Zm9v" * 8 + "+/==", "base64"),
        ("a b 1 ü", "other"),
    ],
)
def test_the_shape_of_a_value(value, shape):
    assert shape_of(value) == shape


@pytest.mark.parametrize(
    ("path", "is_one"),
    [
        ("app/config.yml", True),
        ("Dockerfile.dev", True),
        (".env.production", True),
        ("deploy/.npmrc", True),
        ("src/main.py", False),
        ("package-lock.json", False),
        ("public/lang/de.json", False),
        ("res/values-da/strings.xml", False),
    ],
)
def test_configuration_files(path, is_one):
    assert is_configuration(TreeFile(path, "0" * 40, 100)) is is_one


def test_a_large_file_is_not_read():
    assert not is_configuration(TreeFile("config.yml", "0" * 40, 60_000))


def test_findings_match_by_value_or_by_overlapping_values_in_one_line():
    ours = group_places([Reported("o/r", "a.env", 3, "generic_password", "high", "Tr0ub4dor")])
    theirs = Reported("o/r", "a.env", 3, "other:x", "-", "password=Tr0ub4dor")
    assert is_reported(theirs, ours)
    assert is_reported(replace(theirs, line=9, value="Tr0ub4dor"), ours)
    assert not is_reported(replace(theirs, line=9), ours)
    assert not is_reported(replace(theirs, path="b.env"), ours)
    assert not is_reported(replace(theirs, repo="o/s"), ours)


def test_what_only_others_report_is_drawn_evenly_over_their_rules():
    reported = findings("o/r", 300, rule="other:frequent") + findings("o/s", 3, rule="other:rare")
    assert Counter(found.rule for found in draw_only_others(reported, 20)) == {
        "other:frequent": 17,
        "other:rare": 3,
    }
