"""Test that each secret gets its own companion, and that a text full of pairs is searched once."""

import random

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.engine import companions
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.rules.model import CompanionSpec, Strength
from tests.support.calls import recorded_calls
from tests.support.growth import count_operations
from tests.support.rulesets import BASE62, drawn, hits, ruleset

RULE = next(rule for rule in ruleset().rules if rule.id == "aws_access_key")


def hit_at(start: int, end: int, spec: CompanionSpec) -> Hit:
    return Hit(
        RULE._replace(companions=(spec,)), Secret("x"), start, end, Strength.CONTEXT, Confidence.MEDIUM
    )


@pytest.mark.parametrize("seed", range(30))
def test_companion_is_the_nearest_one_within_its_distance(seed):
    chance = random.Random(f"nearest {seed}")
    spec = CompanionSpec("id", r"<(?P<secret>[a-z]+)>", within=chance.choice([5, 20, 60]))
    around = [
        "".join(chance.choices(["<abc>", "<d>", ".", "....", "-" * 15], k=chance.randrange(6)))
        for _ in range(2)
    ]
    text = "SECRET".join(around)
    hit = hit_at(len(around[0]), len(around[0]) + 6, spec)
    companions.attach_companions([hit], text.encode(), Confidence.LOW)
    ids = [(at + 1, text.index(">", at)) for at in range(len(text)) if text[at] == "<"]
    gaps = [(max(hit.start - right, left - hit.end), left, right) for left, right in ids]
    # The brackets are part of the match, and all of the match must be near enough.
    near = [gap for gap in gaps if hit.start - spec.within < gap[1] and gap[2] < hit.end + spec.within]
    assert {name: reveal(found) for name, found in hit.companions.items()} == (
        {"id": text[slice(*min(near)[1:])]} if near else {}
    )


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("<a>....S.<b>....S.<c>....S", "abc"),  # the next one's id is nearer each time
        ("S....<a>.S....<b>.S....<c>", "abc"),
        ("<a>....S.<b>....S" + "-" * 40 + "S....<c>.S....<d>", "abcd"),
        ("<a>....S" + "-" * 40 + "S....<c>", "ac"),
        ("....S.<b>....S.....", "bb"),  # one id for two secrets
        ("S.S.<a>", "aa"),
        ("<a>..S.<b>", "b"),
        ("<a>....S.<b>....S.<c>", "bc"),  # one id too many: the nearest
    ],
)
def test_each_secret_in_a_row_of_pairs_gets_its_own_companion(text, pairs):
    spec = CompanionSpec("id", r"<(?P<secret>[a-z]+)>", within=12)
    secrets = [hit_at(at, at + 1, spec) for at in range(len(text)) if text[at] == "S"]
    companions.attach_companions(secrets, text.encode(), Confidence.LOW)
    assert "".join(reveal(hit.companions["id"]) for hit in secrets) == pairs


def test_placeholder_counts_in_a_row_of_pairs_but_is_not_reported():
    ids = ["AKIA" + drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, at) for at in range(3)]
    secrets = [drawn(BASE62 + "+/", 40, 0), drawn(BASE62, 33, 1) + "EXAMPLE", drawn(BASE62 + "+/", 40, 2)]
    text = "".join(
        f"AWS_ACCESS_KEY_ID={key_id}\nAWS_SECRET_ACCESS_KEY={secret}\n"
        for key_id, secret in zip(ids, secrets, strict=True)
    )
    reported = [(reveal(hit.secret), list(map(reveal, hit.companions.values()))) for hit in hits(text)]
    assert reported == [(secrets[0], [ids[0]]), (ids[1], []), (secrets[2], [ids[2]])]


def test_hit_without_required_companion_is_dropped():
    spec = CompanionSpec("id", r"id-[0-9]+", within=10, required=True)
    data = b"id-1 SECRET" + b"." * 50 + b"SECRET"
    near, far = hit_at(5, 11, spec), hit_at(61, 67, spec)
    assert companions.drop_incomplete([near, far], data) == [near]


def test_text_full_of_pairs_is_searched_once():
    ids = ["AKIA" + drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, at) for at in range(200)]
    secrets = [drawn(BASE62 + "+/", 40, at) for at in range(200)]
    text = "".join(
        f"aws_access_key_id = {key_id}\naws_secret_access_key = {secret}\n"
        for key_id, secret in zip(ids, secrets, strict=True)
    )
    with recorded_calls(companions._search_near) as searches:
        paired = {
            reveal(hit.secret): reveal(hit.companions["access_key_id"])
            for hit in hits(text)
            if hit.companions
        }
    assert len(paired) > 190
    assert paired.items() <= dict(zip(secrets, ids, strict=True)).items()
    assert len(searches) <= 2 * len(ids)


def test_a_row_of_pairs_is_followed_once_and_not_for_each_secret():
    """Short pairs: hundreds of them are within the distance up to which the ends of a row decide."""
    spec = CompanionSpec("id", r"<(?P<secret>[a-z]+)>", within=200)

    def operations(pairs: int, padding: int) -> int:
        pair = b"SECRET<abc>".ljust(padding, b".")
        found = [hit_at(at * padding, at * padding + 6, spec) for at in range(pairs)]
        return count_operations(lambda: companions.attach_companions(found, pair * pairs, Confidence.LOW))

    assert operations(800, 12) < 1.5 * operations(800, 120)
