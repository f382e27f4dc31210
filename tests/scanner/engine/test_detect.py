"""Test the hits of a text: one per value, of the best rule, with its position, and never in clear text."""

import base64
import random
from functools import cache
from pathlib import Path

import pytest

import outcrop
from bench.near_misses import near_miss_kinds
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine import confirm
from outcrop.scanner.engine.confirm import _window_cache
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import compile_ruleset
from outcrop.scanner.rules.example_templates import expand_template, split_marked_values
from outcrop.scanner.rules.model import Strength
from outcrop.scanner.rules.toml import parse_rule_file
from tests.support.calls import recorded_calls
from tests.support.growth import cpu_seconds, grows_linearly
from tests.support.rulesets import BASE62, BASE64, drawn, github_token, hits, ruleset, values

LOW, MEDIUM, HIGH = Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH
TOKEN = github_token("detect")
HEX32, OTHER32 = drawn("0123456789abcdef", 32, "a"), drawn("0123456789abcdef", 32, "b")


def key_id(seed: object) -> str:
    return "AKIA" + drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, seed)


def key_secret(seed: object) -> str:
    return drawn(BASE64, 40, f"secret {seed}")


ID, ID2, SECRET = key_id(1), key_id(2), key_secret(1)


class TestOneHitPerValue:
    @pytest.mark.parametrize(
        "text",
        [f'password = "{TOKEN}"', f"token: {TOKEN}\n", f"https://u:{TOKEN}@h.io/x", f"API_KEY={TOKEN}\n"],
    )
    def test_specific_rule_is_preferred_to_a_generic_one(self, text):
        (hit,) = hits(text)
        assert (hit.rule.id, hit.strength, reveal(hit.secret)) == (
            "github_pat_classic",
            Strength.CHECKSUM,
            TOKEN,
        )

    def test_value_of_a_specific_rule_is_not_checked_by_a_generic_one(self):
        with recorded_calls(confirm._check_value) as checks:
            assert values("postgres://crm:Kaffee-um-9@pg.corp/crm postgres://user:password@pg.corp/crm") == [
                "Kaffee-um-9"
            ]
        assert [check.arguments["rule"].id for check in checks] == ["postgres_uri", "postgres_uri"]

    def test_window_of_a_specific_rule_is_not_matched_by_a_generic_one(self):
        named = (
            "postgres://crm:Kaffee-um-9@pg.corp/crm mongodb://crm:${PASS}@m.corp/crm "
            "postgres://user:password@pg.corp/crm "
        )
        with recorded_calls(confirm._match_window) as calls:
            assert values(named) == ["Kaffee-um-9"]
        assert {call.arguments["rule"].id for call in calls} == {"postgres_uri", "mongodb_uri"}
        with recorded_calls(confirm._match_window) as calls:
            assert values(f"{named}ftp://crm:Tee-um-8@f.corp {named}") == [
                "Kaffee-um-9",
                "Tee-um-8",
                "Kaffee-um-9",
            ]
        assert [call.arguments["rule"].id for call in calls].count("basic_auth_url") == 1

    def test_value_that_occurs_twice_is_two_hits(self):
        assert [hit.line for hit in hits(f"{TOKEN}\n{TOKEN}\n")] == [1, 2]

    def test_adjacent_values_are_two_hits(self):
        other = github_token("other")
        assert values(f"{TOKEN},{other}") == [TOKEN, other]

    def test_companion_is_reported_if_another_rule_reports_its_secret(self):
        text = (
            "issuer = 'x'\n"
            "[[rule]]\nid = 'pair'\nname = 'Pair'\nsecret_type = 'x'\n"
            "context = ['key']\npattern = '[0-9A-Za-z]{20}'\n"
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
    def test_id_and_secret_are_one_hit(self, text):
        (hit,) = hits(text)
        assert (hit.rule.id, reveal(hit.secret)) == ("aws_access_key", SECRET)
        assert {name: reveal(part) for name, part in hit.companions.items()} == {"access_key_id": ID}

    def test_secret_gets_the_nearer_id_and_the_other_id_is_reported(self):
        text = f"old: {ID2}\n{'# ' * 30}\naws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n"
        alone, pair = hits(text)
        assert (reveal(alone.secret), alone.companion_name) == (ID2, "access_key_id")
        assert (reveal(pair.secret), reveal(pair.companions["access_key_id"])) == (SECRET, ID)

    def test_id_without_a_secret_is_reported(self):
        assert values(f"key: {ID}\n") == [ID]

    @pytest.mark.parametrize("secret", ["wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY", "x" * 40])
    def test_placeholder_secret_does_not_hide_an_id(self, secret):
        assert values(f"aws_access_key_id = {ID}\naws_secret_access_key = {secret}\n") == [ID]

    def test_secret_below_the_minimum_confidence_does_not_hide_its_id(self):
        text = f"aws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n"
        assert values(text, HIGH) == [ID]
        assert values(text, MEDIUM) == [SECRET]

    def test_distant_secret_does_not_hide_an_id(self):
        assert values(f"{ID}\n{'x = 1' * 400}\naws_secret_access_key = {SECRET}\n") == [ID, SECRET]

    def test_each_of_several_pairs_is_one_hit(self):
        pairs = [(key_id(n), key_secret(n)) for n in range(5)]
        text = "".join(
            f"[p{n}]\naws_access_key_id = {a}\naws_secret_access_key = {b}\n"
            for n, (a, b) in enumerate(pairs)
        )
        assert [(reveal(hit.companions["access_key_id"]), reveal(hit.secret)) for hit in hits(text)] == pairs

    def test_twilio_token_needs_an_account_id_or_a_context_word(self):
        assert values(f"AC{HEX32}") == []
        assert values(f"checksum {OTHER32}") == []
        assert values(f"Client('AC{HEX32}', '{OTHER32}')") == [OTHER32]
        assert values(f"twilio_auth_token = {OTHER32}") == [OTHER32]
        (hit,) = hits(f"sid = 'AC{HEX32}'\nTWILIO_AUTH_TOKEN = '{OTHER32}'")
        assert reveal(hit.companions["account_sid"]) == f"AC{HEX32}"

    def test_value_without_its_required_companion_is_not_reported(self):
        text = (
            "issuer = 'x'\n[[rule]]\nid = 'r'\nname = 'R'\nsecret_type = 'x'\npattern = 'kk_[0-9a-z]{20}'\n"
            "[[rule.part]]\nname = 'host'\npattern = '[a-z]+\\.corp\\.io'\nrequired = true\nwithin = 50\n"
        )
        rules = compile_ruleset(parse_rule_file(text, "own.toml"))
        value = "kk_" + drawn("0123456789abcdefghijk", 20, 3)
        assert values(f"{value}", rules=rules) == []
        assert values(f"crm.corp.io {value}", rules=rules) == [value]
        assert values(f"crm.corp.io {' ' * 60} {value}", rules=rules) == []


class TestAllowMark:
    def test_allow_mark_applies_to_its_own_line_only(self):
        text = f"a {TOKEN} # outcrop:allow\nb {github_token(2)}\n# outcrop:allow\nc {github_token(3)}\n"
        assert [hit.allowed for hit in hits(text)] == [True, False, False]

    def test_allow_mark_before_the_value_and_at_the_end_of_the_text(self):
        assert hits(f"/* outcrop:allow */ {TOKEN}")[0].allowed
        assert hits(f"{TOKEN} outcrop:allow")[0].allowed

    def test_allow_mark_in_lines_that_end_with_crlf(self):
        assert [hit.allowed for hit in hits(f"x = {TOKEN} outcrop:allow\r\ny = {github_token(2)}\r\n")] == [
            True,
            False,
        ]

    def test_allow_mark_must_be_near_the_value_in_a_long_line(self):
        text = f"outcrop:allow {'x ' * 5_000}{TOKEN} {'y ' * 5_000} outcrop:allow"
        assert not hits(text)[0].allowed


class TestPosition:
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_lines_and_columns_count_from_one(self, end):
        text = end.join(["", "", f"  x = '{TOKEN}'", github_token(2), f"\ty {github_token(3)}"])
        assert [(hit.line, hit.column) for hit in hits(text)] == [(3, 8), (4, 1), (5, 4)]

    def test_token_at_the_start_and_end_of_a_text(self):
        for text in (TOKEN, f"{TOKEN}\n", f"\n{TOKEN}", f"x {TOKEN}"):
            assert values(text) == [TOKEN]
        for text in (f"x{TOKEN}", f"{TOKEN}x", f"_{TOKEN}", f"{TOKEN}_"):
            assert values(text) == []

    def test_start_and_end_are_byte_offsets_of_the_value(self):
        text = f"é = {TOKEN};"
        (hit,) = hits(text)
        assert text.encode()[hit.start : hit.end].decode() == TOKEN


class TestConfidence:
    def test_wrong_checksum_has_low_confidence(self):
        wrong = TOKEN[:-6] + "000000"
        assert values(f"t = {wrong}") == []
        (hit,) = hits(f"t = {wrong}", LOW)
        assert (hit.confidence, hit.placeholder) == (LOW, False)

    def test_wrong_checksum_is_not_a_generic_hit_either(self):
        assert values(f'password = "{TOKEN[:-6]}000000"') == []

    @pytest.mark.parametrize(
        "text", ["AKIAIOSFODNN7" + "EXAMPLE", 'password = "changeme"', f"token = ghp_{'x' * 36}"]
    )
    def test_examples_and_placeholders_have_low_confidence(self, text):
        assert values(text) == []
        assert all(hit.confidence is LOW for hit in hits(text, LOW))

    def test_lower_minimum_confidence_returns_more_hits(self):
        text = f"{TOKEN}\npassword = 'Wint3r!Oslo'\n{TOKEN[:-6]}000000\n"
        assert [len(hits(text, min_confidence)) for min_confidence in (HIGH, MEDIUM, LOW)] == [1, 2, 3]


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
    def test_key_is_one_hit_with_any_kind_of_line_break(self, text):
        (hit,) = hits(text)
        assert hit.rule.id == "private_key"
        assert reveal(hit.secret).startswith("-----BEGIN")
        assert reveal(hit.secret).endswith("KEY-----")
        assert hit.start == text.index("-----BEGIN")

    def test_ten_keys_are_ten_hits(self):
        keys = [
            PEM.format("\n".join(drawn(BASE64, 64, f"{n} {line}") for line in range(12))) for n in range(10)
        ]
        assert values("\n".join(keys)) == keys

    def test_key_in_base64_is_found(self):
        key = PEM.format("\n".join(BODY))
        assert values("data: " + base64.b64encode(key.encode()).decode()) == [key]


class TestMasking:
    def test_hit_never_prints_its_secret(self):
        text = (
            f"aws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n"
            f"{TOKEN}\npassword = 'Juni-9-Bergen!'\n"
        )
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

    def test_masked_password_shows_no_characters(self):
        (hit,) = hits("password = 'Wint3r!Oslo-Summ3r!Rome'")
        assert hit.secret.masked() == "********"


@pytest.mark.slow
def test_hits_are_also_found_with_every_lower_minimum_confidence():
    rng = random.Random(3)
    lines = [line(rng) for line in near_miss_kinds(ruleset().rules).values() for _ in range(300)]
    lines += [split_marked_values(expand_template(rule.examples[0], rule.id))[0] for rule in ruleset().rules]
    rng.shuffle(lines)
    text = "\n".join(lines).encode()
    # Companions are left out: they are reported alone if the secret has too little confidence.
    low, medium, high = (
        {
            (hit.start, hit.end, hit.rule.id)
            for hit in find(ruleset(), text, min_confidence)
            if hit.companion_name is None
        }
        for min_confidence in reversed(Confidence)
    )
    assert high <= medium <= low


@pytest.mark.parametrize("min_confidence", [Confidence.LOW, Confidence.MEDIUM])
@pytest.mark.parametrize(
    "line",
    [
        "export PASSWORD=your-secret:token={}\n",  # both after a word for a secret
        "export PASSWORD=your-secret:signing_key={}\n",  # after words of two kinds
    ],
)
def test_placeholder_does_not_hide_a_real_value_after_it(line, min_confidence):
    value = drawn(BASE62, 32, "behind")
    assert any(
        found.endswith(value) and "your-secret" not in found
        for found in values(line.format(value), min_confidence)
    )


def source_text() -> bytes:
    """Return the source of the program as one text."""
    return b"".join(file.read_bytes() for file in sorted(Path(outcrop.__file__).parent.rglob("*.py")))


def test_line_of_megabytes_is_as_fast_as_many_lines():
    text = source_text()
    line = text.replace(b"\n", b" ")
    assert len(line) > 1 << 20
    usual = cpu_seconds(lambda _: find(ruleset(), text), 1)
    assert cpu_seconds(lambda _: find(ruleset(), line), 1) < 10 * usual


def test_many_hits_in_one_line_take_linear_time():
    def line(count: int) -> bytes:
        return b" ".join(github_token((count, n)).encode() + b" " * 400 for n in range(count))

    def scan(count: int) -> None:
        assert len(find(ruleset(), lines[count])) == count

    lines = {count: line(count) for count in (500, 4_000)}
    assert grows_linearly(scan, 500, times=8)


NEAR_MISSES = {
    "wrong checksums": lambda rng: f"ghp_{''.join(rng.choices(BASE62, k=36))}\n",
    "placeholders": lambda _: 'password = "changeme"\n',
    "a character short": lambda rng: f"ghp_{''.join(rng.choices(BASE62, k=35))}\n",
    "short secrets": lambda rng: f"aws_secret_access_key = {''.join(rng.choices(BASE64, k=39))}\n",
    "beginnings of keys": lambda _: "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n",
    "beginnings of web tokens": lambda _: "eyJhbGciOi.",
    "escapes": lambda _: "\\u0041bc %22%3D &#65; ",
    "base64": lambda rng: base64.b64encode(b"ghp_" + rng.randbytes(53)).decode() + "\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses_take_linear_time(line):
    rng = random.Random(1)

    def scan(count: int) -> None:
        find(ruleset(), "".join(line(rng) for _ in range(count)).encode())  # new lines: many are cached

    assert grows_linearly(scan, 500)


def measure_throughput(data: bytes) -> float:
    """Return the bytes that `find` scans per CPU second, after the patterns were compiled."""

    def scan(_: int) -> None:
        _window_cache.clear()
        find(ruleset(), data)

    scan(1)
    return len(data) / cpu_seconds(scan, 1)


@cache
def usual_throughput() -> float:
    return measure_throughput(source_text())


RULE_NEAR_MISSES = near_miss_kinds(ruleset().rules)
# How many times slower than other text. Measured: 10 to 50 times. The time is spent in Hyperscan's callback
# for each trigger match, and in RE2 and the checks in Python for each match of a whole pattern.
MAX_SLOWDOWN = dict.fromkeys(RULE_NEAR_MISSES, 150) | {"too short": 10}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAX_SLOWDOWN)
def test_near_misses_of_all_rules_are_not_much_slower_than_other_text(kind):
    rng = random.Random(kind)
    near = "".join(RULE_NEAR_MISSES[kind](rng) + "\n" for _ in range(2_000)).encode()
    assert measure_throughput(near) > usual_throughput() / MAX_SLOWDOWN[kind]
