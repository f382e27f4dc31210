"""What is reported of a text: each value once, by the surest name, in its place, and never in the clear."""

import base64
import random
import time
from pathlib import Path

import pytest

import outcrop
from bench.near_misses import kinds
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine import confirm
from outcrop.scanner.engine.confirm import _window_cache
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import compile_ruleset
from outcrop.scanner.rules.example_templates import expand_template, split_marked_values
from outcrop.scanner.rules.model import Strength
from outcrop.scanner.rules.toml import parse_rule_file
from tests.support.rulesets import BASE62, BASE64, drawn, github_token, hits, ruleset, values

LOW, MEDIUM, HIGH = Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH
TOKEN = github_token("detect")
HEX32, OTHER32 = drawn("0123456789abcdef", 32, "a"), drawn("0123456789abcdef", 32, "b")


def key_id(seed: object) -> str:
    return "AKIA" + drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, seed)


def key_secret(seed: object) -> str:
    return drawn(BASE64, 40, f"secret {seed}")


ID, ID2, SECRET = key_id(1), key_id(2), key_secret(1)


class TestOneValueOneFinding:
    @pytest.mark.parametrize(
        "text",
        [f'password = "{TOKEN}"', f"token: {TOKEN}\n", f"https://u:{TOKEN}@h.io/x", f"API_KEY={TOKEN}\n"],
    )
    def test_a_specific_rule_names_what_a_generic_one_sees_too(self, text):
        (hit,) = hits(text)
        assert (hit.rule.id, hit.strength, reveal(hit.secret)) == (
            "github_pat_classic",
            Strength.CHECKSUM,
            TOKEN,
        )

    def test_what_a_rule_names_by_itself_is_not_judged_by_one_that_knows_less(self, monkeypatch):
        judged = []
        original = confirm._check_value
        monkeypatch.setattr(
            confirm, "_check_value", lambda rule, *rest: judged.append(rule.id) or original(rule, *rest)
        )
        assert values("postgres://crm:Kaffee-um-9@pg.corp/crm postgres://user:password@pg.corp/crm") == [
            "Kaffee-um-9"
        ]
        assert judged == ["postgres_uri", "postgres_uri"]

    def test_what_a_rule_names_is_not_even_matched_by_one_that_knows_less(self, monkeypatch):
        matched = []
        original = confirm._match_window
        monkeypatch.setattr(
            confirm, "_match_window", lambda rule, *rest: matched.append(rule.id) or original(rule, *rest)
        )
        named = "postgres://crm:Kaffee-um-9@pg.corp/crm mongodb://crm:${PASS}@m.corp/crm postgres://user:password@pg.corp/crm "
        assert values(named) == ["Kaffee-um-9"]
        assert set(matched) == {"postgres_uri", "mongodb_uri"}
        matched.clear()
        assert values(f"{named}ftp://crm:Tee-um-8@f.corp {named}") == [
            "Kaffee-um-9",
            "Tee-um-8",
            "Kaffee-um-9",
        ]
        assert matched.count("basic_auth_url") == 1

    def test_a_value_that_stands_twice_is_two_hits_of_the_text(self):
        assert [hit.line for hit in hits(f"{TOKEN}\n{TOKEN}\n")] == [1, 2]

    def test_two_values_side_by_side_are_two(self):
        other = github_token("other")
        assert values(f"{TOKEN},{other}") == [TOKEN, other]

    def test_a_weaker_rule_does_not_take_the_companion_of_a_value_that_another_names(self):
        text = (
            "issuer = 'x'\n"
            "[[rule]]\nid = 'pair'\nname = 'Pair'\nsecret_type = 'x'\ncontext = ['key']\npattern = '[0-9A-Za-z]{20}'\n"
            "[[rule.part]]\nname = 'id'\npattern = 'ID[0-9]{8}'\nalone = true\n"
            "[[rule]]\nid = 'named'\nname = 'Named'\nsecret_type = 'x'\npattern = 'ZZZZ[0-9A-Za-z]{16}'\n"
        )
        rules = compile_ruleset(parse_rule_file(text, "own.toml"))
        found = find(rules, b"ID48151623 key ZZZZ" + drawn(BASE62, 16, 5).encode())
        assert [(hit.rule.id, hit.companion_name) for hit in found] == [("pair", "id"), ("named", None)]


class TestPairs:
    @pytest.mark.parametrize(
        "text",
        [
            f"aws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n",
            f"secretAccessKey: '{SECRET}', accessKeyId: '{ID}'",
            f"{ID},{SECRET}\n",
        ],
    )
    def test_an_id_and_its_secret_are_one_finding(self, text):
        (hit,) = hits(text)
        assert (hit.rule.id, reveal(hit.secret)) == ("aws_access_key", SECRET)
        assert {name: reveal(part) for name, part in hit.companions.items()} == {"access_key_id": ID}

    def test_of_two_ids_the_nearer_belongs_to_the_secret_and_the_other_is_reported(self):
        text = f"old: {ID2}\n{'# ' * 30}\naws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n"
        alone, pair = hits(text)
        assert (reveal(alone.secret), alone.companion_name) == (ID2, "access_key_id")
        assert (reveal(pair.secret), reveal(pair.companions["access_key_id"])) == (SECRET, ID)

    def test_an_id_alone_is_reported(self):
        assert values(f"key: {ID}\n") == [ID]

    @pytest.mark.parametrize("secret", ["wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY", "x" * 40])
    def test_a_placeholder_beside_it_does_not_hide_an_id(self, secret):
        assert values(f"aws_access_key_id = {ID}\naws_secret_access_key = {secret}\n") == [ID]

    def test_a_secret_that_is_not_shown_does_not_hide_its_id(self):
        text = f"aws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n"
        assert values(text, HIGH) == [ID]
        assert values(text, MEDIUM) == [SECRET]

    def test_a_far_secret_does_not_hide_an_id(self):
        assert values(f"{ID}\n{'x = 1' * 400}\naws_secret_access_key = {SECRET}\n") == [ID, SECRET]

    def test_two_pairs_each_have_their_own(self):
        pairs = [(key_id(n), key_secret(n)) for n in range(5)]
        text = "".join(
            f"[p{n}]\naws_access_key_id = {a}\naws_secret_access_key = {b}\n"
            for n, (a, b) in enumerate(pairs)
        )
        assert [(reveal(hit.companions["access_key_id"]), reveal(hit.secret)) for hit in hits(text)] == pairs

    def test_twilio_needs_its_account_or_its_word(self):
        assert values(f"AC{HEX32}") == []
        assert values(f"checksum {OTHER32}") == []
        assert values(f"Client('AC{HEX32}', '{OTHER32}')") == [OTHER32]
        assert values(f"twilio_auth_token = {OTHER32}") == [OTHER32]
        (hit,) = hits(f"sid = 'AC{HEX32}'\nTWILIO_AUTH_TOKEN = '{OTHER32}'")
        assert reveal(hit.companions["account_sid"]) == f"AC{HEX32}"

    def test_a_required_part_that_is_missing_means_no_finding(self):
        text = (
            "issuer = 'x'\n[[rule]]\nid = 'r'\nname = 'R'\nsecret_type = 'x'\npattern = 'kk_[0-9a-z]{20}'\n"
            "[[rule.part]]\nname = 'host'\npattern = '[a-z]+\\.corp\\.io'\nrequired = true\nwithin = 50\n"
        )
        rules = compile_ruleset(parse_rule_file(text, "own.toml"))
        value = "kk_" + drawn("0123456789abcdefghijk", 20, 3)
        assert values(f"{value}", rules=rules) == []
        assert values(f"crm.corp.io {value}", rules=rules) == [value]
        assert values(f"crm.corp.io {' ' * 60} {value}", rules=rules) == []


class TestAllowed:
    def test_the_mark_counts_on_its_own_line_only(self):
        text = f"a {TOKEN} # outcrop:allow\nb {github_token(2)}\n# outcrop:allow\nc {github_token(3)}\n"
        assert [hit.allowed for hit in hits(text)] == [True, False, False]

    def test_before_the_value_and_at_the_end_of_the_text(self):
        assert hits(f"/* outcrop:allow */ {TOKEN}")[0].allowed
        assert hits(f"{TOKEN} outcrop:allow")[0].allowed

    def test_with_crlf(self):
        assert [hit.allowed for hit in hits(f"x = {TOKEN} outcrop:allow\r\ny = {github_token(2)}\r\n")] == [
            True,
            False,
        ]

    def test_in_a_line_of_megabytes_the_mark_stands_near(self):
        text = f"outcrop:allow {'x ' * 5_000}{TOKEN} {'y ' * 5_000} outcrop:allow"
        assert not hits(text)[0].allowed


class TestPlace:
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_lines_and_columns_count_from_one(self, end):
        text = end.join(["", "", f"  x = '{TOKEN}'", github_token(2), f"\ty {github_token(3)}"])
        assert [(hit.line, hit.column) for hit in hits(text)] == [(3, 8), (4, 1), (5, 4)]

    def test_at_the_beginning_and_at_the_very_end(self):
        for text in (TOKEN, f"{TOKEN}\n", f"\n{TOKEN}", f"x {TOKEN}"):
            assert values(text) == [TOKEN]
        for text in (f"x{TOKEN}", f"{TOKEN}x", f"_{TOKEN}", f"{TOKEN}_"):
            assert values(text) == []

    def test_start_and_end_are_where_the_value_stands(self):
        text = f"é = {TOKEN};"
        (hit,) = hits(text)
        assert text.encode()[hit.start : hit.end].decode() == TOKEN


class TestConfidence:
    def test_a_wrong_checksum_is_of_low_confidence(self):
        wrong = TOKEN[:-6] + "000000"
        assert values(f"t = {wrong}") == []
        (hit,) = hits(f"t = {wrong}", LOW)
        assert (hit.confidence, hit.placeholder) == (LOW, False)

    def test_a_wrong_checksum_is_not_a_generic_finding_either(self):
        assert values(f'password = "{TOKEN[:-6]}000000"') == []

    @pytest.mark.parametrize(
        "text", ["AKIAIOSFODNN7" + "EXAMPLE", 'password = "changeme"', f"token = ghp_{'x' * 36}"]
    )
    def test_examples_and_placeholders_are_of_low_confidence(self, text):
        assert values(text) == []
        assert all(hit.confidence is LOW for hit in hits(text, LOW))

    def test_floors_nest(self):
        text = f"{TOKEN}\npassword = 'Wint3r!Oslo'\n{TOKEN[:-6]}000000\n"
        assert [len(hits(text, floor)) for floor in (HIGH, MEDIUM, LOW)] == [1, 2, 3]


PEM = "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"
BODY = [drawn(BASE64, 64, n) for n in range(25)]


class TestKeyBlocks:
    @pytest.mark.parametrize(
        "text",
        [
            PEM.format("\n".join(BODY)),
            PEM.format("\r\n".join(BODY)),
            "key: |\n    " + PEM.format("\n".join(BODY)).replace("\n", "\n    ") + "\nnext: 1",
            '{"private_key": "' + PEM.format("\n".join(BODY)).replace("\n", "\\n") + '\\n"}',
            "K='" + PEM.format("\n".join(BODY)).replace("\n", "\\n") + "'",
        ],
    )
    def test_however_it_is_broken_into_lines_it_is_one_finding(self, text):
        (hit,) = hits(text)
        assert hit.rule.id == "private_key"
        assert reveal(hit.secret).startswith("-----BEGIN")
        assert reveal(hit.secret).endswith("KEY-----")
        assert hit.start == text.index("-----BEGIN")

    def test_ten_keys_are_ten_findings(self):
        keys = [
            PEM.format("\n".join(drawn(BASE64, 64, f"{n} {line}") for line in range(12))) for n in range(10)
        ]
        assert values("\n".join(keys)) == keys

    def test_a_key_in_base64(self):
        key = PEM.format("\n".join(BODY))
        assert values("data: " + base64.b64encode(key.encode()).decode()) == [key]


class TestMasked:
    def test_a_hit_never_prints_its_secret(self):
        text = f"aws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n{TOKEN}\npassword = 'Juni-9-Bergen!'\n"
        found = hits(text)
        assert len(found) == 3
        for hit in found:
            for shown in (
                repr(hit),
                str(hit),
                f"{hit}",
                repr(hit.secret),
                f"{hit.secret}",
                repr(hit.companions),
            ):
                for value in (SECRET, ID, TOKEN, "Juni-9-Bergen!"):
                    assert value not in shown

    def test_of_a_password_not_even_the_ends_are_shown(self):
        (hit,) = hits("password = 'Wint3r!Oslo-Summ3r!Rome'")
        assert hit.secret.masked() == "********"


def test_what_is_sure_enough_for_a_floor_is_found_at_every_lower_one():
    chance = random.Random(3)
    lines = [line(chance) for line in kinds(ruleset().rules).values() for _ in range(300)]
    lines += [split_marked_values(expand_template(rule.examples[0], rule.id))[0] for rule in ruleset().rules]
    chance.shuffle(lines)
    text = "\n".join(lines).encode()
    # A companion is told with its partner, or alone where that is not sure enough.
    low, medium, high = (
        {
            (hit.start, hit.end, hit.rule.id)
            for hit in find(ruleset(), text, floor)
            if hit.companion_name is None
        }
        for floor in reversed(Confidence)
    )
    assert high <= medium <= low


@pytest.mark.parametrize("floor", [Confidence.LOW, Confidence.MEDIUM])
@pytest.mark.parametrize(
    "line",
    [
        "export PASSWORD=your-secret:token={}\n",  # both beside a word for a secret
        "export PASSWORD=your-secret:signing_key={}\n",  # beside words of two kinds
    ],
)
def test_a_stand_in_does_not_hide_a_value_that_is_none(line, floor):
    value = drawn(BASE62, 32, "behind")
    assert any(
        found.endswith(value) and "your-secret" not in found for found in values(line.format(value), floor)
    )


def took(data: bytes, count: int | None = None) -> float:
    """Give the CPU time of one look: other work on the machine disturbs it less."""
    started = time.process_time()
    found = find(ruleset(), data)
    assert count is None or len(found) == count
    return time.process_time() - started


def test_a_line_of_megabytes_is_as_fast_as_many_lines():
    text = b"".join(file.read_bytes() for file in sorted(Path(outcrop.__file__).parent.rglob("*.py")))
    source = (text * (20_000_000 // len(text) + 1))[:20_000_000]
    usual = min(took(source), took(source))
    assert min(took(source.replace(b"\n", b" ")) for _ in range(2)) < 10 * usual


def test_many_hits_in_one_line_take_linear_time():
    def line(count: int) -> bytes:
        return b" ".join(github_token((count, n)).encode() + b" " * 400 for n in range(count))

    took(line(100))
    assert took(line(8_000), 8_000) < 12 * max(took(line(2_000), 2_000), 0.02)


NEAR = {
    "wrong checksums": lambda chance: f"ghp_{''.join(chance.choices(BASE62, k=36))}\n",
    "placeholders": lambda _: 'password = "changeme"\n',
    "a character short": lambda chance: f"ghp_{''.join(chance.choices(BASE62, k=35))}\n",
    "short secrets": lambda chance: f"aws_secret_access_key = {''.join(chance.choices(BASE64, k=39))}\n",
    "beginnings of keys": lambda _: "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n",
    "beginnings of web tokens": lambda _: "eyJhbGciOi.",
    "escapes": lambda _: "\\u0041bc %22%3D &#65; ",
    "base64": lambda chance: base64.b64encode(b"ghp_" + chance.randbytes(53)).decode() + "\n",
}


@pytest.mark.parametrize("line", NEAR.values(), ids=NEAR)
def test_near_misses_take_linear_time(line):
    chance = random.Random(1)
    warm, few, many = ("".join(line(chance) for _ in range(count)).encode() for count in (500, 3_000, 12_000))
    took(warm)
    assert took(many) < 12 * max(took(few), 0.02)


def rate(data: bytes) -> float:
    """Give bytes per CPU second, which other work on the machine disturbs less, after the patterns have been compiled."""
    find(ruleset(), data)
    rates = []
    for _ in range(3):
        _window_cache.clear()
        started = time.process_time()
        find(ruleset(), data)
        rates.append(len(data) / (time.process_time() - started))
    return max(rates)


SPOILT = kinds(ruleset().rules)
# Measured: a hundredth to a thirtieth before, a fiftieth to a tenth now. What is left is the engine's call for each place it has seen,
# and for what it has matched wholly the second engine and the judgement in Python.
JUDGED = dict.fromkeys(SPOILT, 150) | {"too short": 10}


@pytest.mark.parametrize("kind", JUDGED)
def test_near_misses_of_all_rules_are_not_much_slower_than_other_text(kind):
    text = b"".join(file.read_bytes() for file in sorted(Path(outcrop.__file__).parent.rglob("*.py")))
    chance = random.Random(kind)
    near = "".join(SPOILT[kind](chance) + "\n" for _ in range(3_000)).encode()
    assert rate(near) > rate(text * 3) / JUDGED[kind]
