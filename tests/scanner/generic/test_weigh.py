"""Values are scored by their noun, their shape, their letters and their features."""

import random
import string

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.generic.names import Noun
from outcrop.scanner.generic.randomness import random_bits
from outcrop.scanner.generic.score import DIRECT_ASSIGNMENT, POINTS, weigh
from outcrop.scanner.generic.values import SHAPE_PATTERNS, Shape

BASE62 = string.ascii_letters + string.digits


def random_text(alphabet: str, length: int, seed: object = 1) -> str:
    """Return random characters of an alphabet; the same for the same seed."""
    chance = random.Random(f"{seed} {alphabet} {length}")
    return "".join(chance.choice(alphabet) for _ in range(length))


def test_every_shape_has_patterns_and_every_noun_has_points():
    assert set(SHAPE_PATTERNS) == set(Shape)
    assert set(Noun) <= set(POINTS)


def test_words_have_few_random_bits_and_random_letters_have_many():
    for word in (
        "password",
        "refreshToken",
        "Passwort",
        "configuration",
        "com.corp.auth.TokenProvider",
        "getUserName",
    ):
        assert random_bits(word) < 5, word
    for seed in range(50):
        assert random_bits(random_text(BASE62, 24, seed)) > 5
    below = sum(random_bits(random_text(string.ascii_lowercase, 10, seed)) < 8 for seed in range(500))
    assert below < 25


def test_a_value_has_more_points_with_a_clearer_noun():
    value = b"Wint3r!Oslo"
    points = [weigh(value, noun, "quoted").points for noun in (Noun.PASSWORD, Noun.SECRET, Noun.KEY)]
    assert points == sorted(points, reverse=True)
    assert weigh(value, Noun.PASSWORD, "quoted").confidence is Confidence.MEDIUM


def test_a_long_random_value_has_high_confidence():
    assert weigh(random_text(BASE62, 32).encode(), Noun.SECRET, "quoted").confidence is Confidence.HIGH


def test_the_points_of_the_reasons_add_up_to_the_points_of_the_score():
    for value in (b"Wint3r!Oslo", b"hunter2-Oslo", b"qwerty12345", random_text(BASE62, 32).encode()):
        score = weigh(value, Noun.PASSWORD, "bare", ("part of an expression",))
        assert score.points == pytest.approx(sum(points for _, points in score.reasons))
        assert ("password", POINTS[Noun.PASSWORD]) in score.reasons
        assert ("part of an expression", POINTS["part of an expression"]) in score.reasons


@pytest.mark.parametrize(
    "value", ["qwertyuiop12", "1qaz2wsx", "password1", "aaaabbbb1", "MyPassword99", "secret123"]
)
def test_keyboard_walks_and_words_for_passwords_are_no_findings(value):
    assert weigh(value.encode(), Noun.PASSWORD, "quoted").confidence in {None, Confidence.LOW}


@pytest.mark.parametrize(
    "value", ["sunshine", "Geheimnis", "camelCaseName", "${X}", "/etc/passwd", "1.2.3", "a.b.c(d)"]
)
def test_words_references_locations_and_code_are_no_findings(value):
    assert weigh(value.encode(), Noun.PASSWORD, "quoted").confidence in {None, Confidence.LOW}


@pytest.mark.parametrize(
    "value",
    [
        "md5$c7hN8n6nJPb1$3a3b5c3d4a5e6c4f7a4e6c7d5b3a5c2e",
        f"$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ${random_text(BASE62, 22)}",
        f"2.{random_text(BASE62, 22)}==|{random_text(BASE62, 22)}==|{random_text(BASE62, 43)}=",
        "[s|S][e|E][c|C][r|R][e|E][t|T].{0,30}[0-9A-F]{8}-[0-9A-F]{4}",
        "crn:v1:bluemix:public:kms:global:a",
        "%[2]s-%[1]d",
    ],
)
def test_hashes_and_regular_expressions_are_no_findings_however_random_they_look(value):
    assert weigh(value.encode(), Noun.SECRET, "quoted").confidence is None


@pytest.mark.parametrize(
    "value", ["xkqjwmztpl", "ciygd", "lua_ppuwxwwl", "axwytkcb-bbdrdt", "Qzkvwjtx", "924095", "mzqk"]
)
def test_short_random_values_are_passwords(value):
    assert weigh(value.encode(), Noun.PASSWORD, "quoted").confidence is Confidence.MEDIUM


@pytest.mark.parametrize(
    "value",
    ["ldap", "spam", "kms_key_id", "pki-acme", "csrf_token", "100000", "20240131", "新しいパスワード2"],
)
def test_syllables_round_numbers_and_labels_are_no_findings(value):
    for noun in (Noun.SECRET, Noun.PASSWORD) if value != "20240131" else (Noun.SECRET,):
        assert weigh(value.encode(), noun, "quoted").confidence in {None, Confidence.LOW}


@pytest.mark.parametrize(
    "value", ["vnzb ukyquf", "omq amqltypznj", "itnc ptx8 wk2t m3mk q4lx 7bcx vdes wrwh"]
)
def test_a_random_phrase_is_a_password(value):
    assert weigh(value.encode(), Noun.PASSWORD, "quoted").confidence in {
        Confidence.MEDIUM,
        Confidence.HIGH,
    }


@pytest.mark.parametrize(
    "value",
    [
        "Please enter it twice",
        "Jina la mtumiaji au nywila sio sahihi",
        "Nacbwch gyfrinair newydd",
        "Tajny klucz",
        "M\u1eadt kh\u1ea9u m\u1edbi",
        "btn btn-primary",
        "INSERT INTO users VALUES (1)",
    ],
)
def test_a_phrase_in_a_language_is_no_password(value):
    for noun in (Noun.PASSWORD, Noun.SECRET):
        assert weigh(value.encode(), noun, "quoted").confidence is None


def test_a_long_number_is_a_secret_unless_it_ends_with_zeros():
    assert weigh(b"4431214082403941", Noun.SECRET, "bare").confidence is Confidence.MEDIUM
    assert weigh(b"4431214082000000", Noun.SECRET, "bare").confidence is not Confidence.MEDIUM
    assert weigh(b"443121408", Noun.SECRET, "bare").confidence is not Confidence.MEDIUM


def test_bytes_with_a_constant_step_are_no_secret():
    assert weigh(bytes(range(16)).hex().encode(), Noun.SECRET, "quoted").confidence in {
        None,
        Confidence.LOW,
    }
    assert weigh(bytes(range(250, 10, -15)).hex().encode(), Noun.SECRET, "quoted").confidence in {
        None,
        Confidence.LOW,
    }
    assert weigh(random_text("0123456789abcdef", 32).encode(), Noun.SECRET, "quoted").confidence is not None


@pytest.mark.parametrize(
    "value",
    ["sunshine", "blue", "sunshine!", "copper-kettle", "paq;cow*sun", "veryPriv@ate", "IZ?PCT?OFX?LWO"],
)
def test_a_word_in_a_direct_assignment_is_a_password(value):
    assert (
        weigh(value.encode(), Noun.PASSWORD, "quoted", (DIRECT_ASSIGNMENT,)).confidence is Confidence.MEDIUM
    )


@pytest.mark.parametrize(
    "value",
    [
        "string",
        "required",
        "heslo",
        "Geheimnis",
        "camelCaseName",
        "login.title",
        "USER_AGENT",
        "my-password",
    ],
)
def test_types_states_labels_and_names_in_a_direct_assignment_are_no_passwords(value):
    assert weigh(value.encode(), Noun.PASSWORD, "quoted", (DIRECT_ASSIGNMENT,)).confidence in {
        None,
        Confidence.LOW,
    }


def test_words_with_punctuation_are_no_password_without_quotes():
    assert weigh(b"copper-kettle", Noun.PASSWORD, "bare", (DIRECT_ASSIGNMENT,)).confidence is None


@pytest.mark.parametrize("value", ["Welcome1", "Oracle123", "Admin12345", "harbor2024!"])
def test_a_word_with_a_number_in_a_direct_assignment_is_a_password(value):
    assert weigh(value.encode(), Noun.PASSWORD, "bare", (DIRECT_ASSIGNMENT,)).confidence is Confidence.MEDIUM


@pytest.mark.parametrize(
    "value", ["qwerty12345", "test123456", "1qaz2wsx", "password1", "MyPassword99", "secret123"]
)
def test_a_placeholder_with_a_number_in_a_direct_assignment_is_no_password(value):
    assert weigh(value.encode(), Noun.PASSWORD, "bare", (DIRECT_ASSIGNMENT,)).confidence in {
        None,
        Confidence.LOW,
    }


def test_letters_before_padding_are_base64_unless_they_are_words():
    for noun in (Noun.SECRET, Noun.KEY):
        assert weigh(b"jsvxFBtnPBp=", noun, "quoted").confidence is Confidence.MEDIUM
        assert weigh(b"accessToken=", noun, "quoted").confidence is not Confidence.MEDIUM
