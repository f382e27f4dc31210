"""Secrets and their companions: each gets the nearest, and a text that is full of both is looked through once."""

import random

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.engine import companions
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.rules.model import CompanionSpec, Strength
from tests.support.rulesets import BASE62, drawn, hits, ruleset

RULE = next(rule for rule in ruleset().rules if rule.id == "aws_access_key")


def hit_at(start: int, end: int, part: CompanionSpec) -> Hit:
    return Hit(
        RULE._replace(companions=(part,)), Secret("x"), start, end, Strength.CONTEXT, Confidence.MEDIUM
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_companion_is_the_nearest_that_is_near_enough(seed):
    chance = random.Random(f"nearest {seed}")
    part = CompanionSpec("id", r"<(?P<secret>[a-z]+)>", within=chance.choice([5, 20, 60]))
    around = [
        "".join(chance.choices(["<abc>", "<d>", ".", "....", "-" * 15], k=chance.randrange(6)))
        for _ in range(2)
    ]
    text = "SECRET".join(around)
    hit = hit_at(len(around[0]), len(around[0]) + 6, part)
    companions.attach_companions([hit], text.encode(), Confidence.LOW)
    ids = [(at + 1, text.index(">", at)) for at in range(len(text)) if text[at] == "<"]
    gaps = [(max(hit.start - right, left - hit.end), left, right) for left, right in ids]
    # The brackets count as well: a companion is near enough when all that makes it one is.
    near = [one for one in gaps if hit.start - part.within < one[1] and one[2] < hit.end + part.within]
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
        ("....S.<b>....S.....", "bb"),  # one for two
        ("S.S.<a>", "aa"),
        ("<a>..S.<b>", "b"),
        ("<a>....S.<b>....S.<c>", "bc"),  # one too many: the nearest
    ],
)
def test_pairs_in_a_row_are_each_with_their_own(text, pairs):
    part = CompanionSpec("id", r"<(?P<secret>[a-z]+)>", within=12)
    mine = [hit_at(at, at + 1, part) for at in range(len(text)) if text[at] == "S"]
    companions.attach_companions(mine, text.encode(), Confidence.LOW)
    assert "".join(reveal(hit.companions["id"]) for hit in mine) == pairs


def test_a_stand_in_takes_part_in_a_row_and_is_not_told():
    ids = ["AKIA" + drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, at) for at in range(3)]
    secrets = [drawn(BASE62 + "+/", 40, 0), drawn(BASE62, 33, 1) + "EXAMPLE", drawn(BASE62 + "+/", 40, 2)]
    text = "".join(
        f"AWS_ACCESS_KEY_ID={one}\nAWS_SECRET_ACCESS_KEY={other}\n"
        for one, other in zip(ids, secrets, strict=True)
    )
    told = [(reveal(hit.secret), [reveal(part) for part in hit.companions.values()]) for hit in hits(text)]
    assert told == [(secrets[0], [ids[0]]), (ids[1], []), (secrets[2], [ids[2]])]


def test_what_lacks_a_companion_that_it_requires_is_left_out():
    part = CompanionSpec("id", r"id-[0-9]+", within=10, required=True)
    data = b"id-1 SECRET" + b"." * 50 + b"SECRET"
    near, far = hit_at(5, 11, part), hit_at(61, 67, part)
    assert companions.drop_incomplete([near, far], data) == [near]


def test_a_text_that_is_full_of_pairs_is_looked_through_once(monkeypatch):
    ids = ["AKIA" + drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, at) for at in range(200)]
    secrets = [drawn(BASE62 + "+/", 40, at) for at in range(200)]
    looks = []
    original = companions.find_spans
    monkeypatch.setattr(companions, "find_spans", lambda *given: looks.append(given) or original(*given))
    text = "".join(
        f"aws_access_key_id = {one}\naws_secret_access_key = {other}\n"
        for one, other in zip(ids, secrets, strict=True)
    )
    paired = {
        reveal(hit.secret): reveal(hit.companions["access_key_id"]) for hit in hits(text) if hit.companions
    }
    assert len(paired) > 190
    assert paired.items() <= dict(zip(secrets, ids, strict=True)).items()
    assert len(looks) <= 2 * len(ids)
