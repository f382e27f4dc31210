"""The judge of generic values: what names say, what values are, and what comes of both in their place."""

import base64
import random
import string
import time

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.generic.context import is_code_file
from outcrop.scanner.generic.names import Noun, find_noun
from outcrop.scanner.generic.randomness import random_bits
from outcrop.scanner.generic.score import DIRECT_ASSIGNMENT, POINTS, weigh
from outcrop.scanner.generic.values import SHAPE_PATTERNS, Shape, shape_of
from outcrop.scanner.rules.example_templates import split_marked_values
from outcrop.sources.located import hits_at_path
from tests.support.rulesets import github_token, hits, ruleset, values

BASE62 = string.ascii_letters + string.digits


def drawn(alphabet: str, length: int, seed: object = 1) -> str:
    chance = random.Random(f"{seed} {alphabet} {length}")
    return "".join(chance.choice(alphabet) for _ in range(length))


@pytest.mark.parametrize(
    ("name", "noun"),
    [
        ("password", Noun.PASSWORD),
        ("DB_PASSWORD", Noun.PASSWORD),
        ("spring.datasource.password", Noun.PASSWORD),
        ("dbPass", Noun.PASSWORD),
        ("mysqlpwd", Noun.PASSWORD),
        ("IDENTIFIED BY", Noun.PASSWORD),
        ("clientSecret", Noun.SECRET),
        ("api-key", Noun.SECRET),
        ("ENCRYPTION_KEY", Noun.SECRET),
        ("secretKey", Noun.SECRET),
        ("authToken", Noun.SECRET),
        ("key", Noun.KEY),
        ("salt", Noun.KEY),
        ("password_field", None),
        ("token_url", None),
        ("tokenType", None),
        ("keyCode", None),
        ("public_key", None),
        ("server.public.key", None),
        ("encrypted_key", None),
        ("encrypted.password", None),
        ("xpack.encryptedSavedObjects.encryptionKey", Noun.SECRET),
        ("publicKeyToken", None),
        ("primary_key", None),
        ("secret_name", None),
        ("pass_fds", None),
        ("compass", None),
        ("monkey", None),
        ("tokenizer", None),
        ("author", None),
        ("nextPageToken", None),
        ("resetToken", Noun.KEY),
        ("changeToken", Noun.KEY),
        ("oauth_request_token", Noun.KEY),
        ("skey", Noun.KEY),
        ("hkey", None),
    ],
)
def test_what_a_name_calls_its_value(name, noun):
    assert find_noun(name.encode()) is noun


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ("${DB_PASSWORD}", Shape.REFERENCE),
        ("<your-key>", Shape.REFERENCE),
        ("%s", Shape.REFERENCE),
        ("sha256-abc", Shape.PUBLIC),
        ("ECDHE-RSA-AES256-GCM-SHA384", Shape.PUBLIC),
        ("ENC(abcdef)", Shape.ENCRYPTED),
        ("7b3bcec2-374e-4c5a-b2b9-563bf47249f0", Shape.UUID),
        ("refreshToken", Shape.LETTERS),
        ("2024-01-31", Shape.NUMBER),
        ("86400", Shape.NUMBER),
        ("/etc/ssl/server.key", Shape.LOCATION),
        ("https://id.corp/token", Shape.LOCATION),
        ("0123456789abcdef0123", Shape.HEX),
        ("forgot-password-link", Shape.WORDS),
        ("get_token(x)", Shape.CODE),
        ("^[a-z]+$", Shape.CODE),
        ("hunter2", Shape.NUMBERED_WORDS),
        ("copper-lantern-71", Shape.NUMBERED_WORDS),
        ("correct horse battery", Shape.PHRASE),
        ("x9Kd8sLq2mZp", Shape.ALPHANUMERIC),
        ("Wint3r!Oslo", Shape.OTHER),
    ],
)
def test_the_shape_of_a_value(value, shape):
    assert shape_of(value.encode()) is shape


def test_every_shape_has_patterns_and_every_reason_its_points():
    assert set(SHAPE_PATTERNS) == set(Shape)
    assert set(Noun) <= set(POINTS)


def test_words_look_written_and_drawn_letters_do_not():
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
        assert random_bits(drawn(BASE62, 24, seed)) > 5
    below = sum(random_bits(drawn(string.ascii_lowercase, 10, seed)) < 8 for seed in range(500))
    assert below < 25


class TestWeighing:
    def test_the_same_value_is_worth_more_beside_a_plainer_name(self):
        value = b"Wint3r!Oslo"
        points = [weigh(value, noun, "quoted").points for noun in (Noun.PASSWORD, Noun.SECRET, Noun.KEY)]
        assert points == sorted(points, reverse=True)
        assert weigh(value, Noun.PASSWORD, "quoted").confidence is Confidence.MEDIUM

    def test_a_long_random_value_is_sure(self):
        assert weigh(drawn(BASE62, 32).encode(), Noun.SECRET, "quoted").confidence is Confidence.HIGH

    def test_reasons_add_up_to_the_points(self):
        for value in (b"Wint3r!Oslo", b"hunter2-Oslo", b"qwerty12345", drawn(BASE62, 32).encode()):
            verdict = weigh(value, Noun.PASSWORD, "bare", ("part of an expression",))
            assert verdict.points == pytest.approx(sum(points for _, points in verdict.reasons))
            assert ("password", POINTS[Noun.PASSWORD]) in verdict.reasons
            assert ("part of an expression", POINTS["part of an expression"]) in verdict.reasons

    @pytest.mark.parametrize(
        "value", ["qwertyuiop12", "1qaz2wsx", "password1", "aaaabbbb1", "MyPassword99", "secret123"]
    )
    def test_what_people_type_without_thinking_is_no_finding(self, value):
        assert weigh(value.encode(), Noun.PASSWORD, "quoted").confidence in {None, Confidence.LOW}

    @pytest.mark.parametrize(
        "value", ["sunshine", "Geheimnis", "camelCaseName", "${X}", "/etc/passwd", "1.2.3", "a.b.c(d)"]
    )
    def test_words_references_places_and_code_are_nothing(self, value):
        assert weigh(value.encode(), Noun.PASSWORD, "quoted").confidence in {None, Confidence.LOW}

    @pytest.mark.parametrize(
        "value", ["xkqjwmztpl", "ciygd", "lua_ppuwxwwl", "axwytkcb-bbdrdt", "Qzkvwjtx", "924095", "mzqk"]
    )
    def test_what_nobody_would_write_is_a_password_however_short(self, value):
        assert weigh(value.encode(), Noun.PASSWORD, "quoted").confidence is Confidence.MEDIUM

    @pytest.mark.parametrize(
        "value",
        ["ldap", "spam", "kms_key_id", "pki-acme", "csrf_token", "100000", "20240131", "新しいパスワード2"],
    )
    def test_syllables_round_numbers_and_labels_are_none(self, value):
        for noun in (Noun.SECRET, Noun.PASSWORD) if value != "20240131" else (Noun.SECRET,):
            assert weigh(value.encode(), noun, "quoted").confidence in {None, Confidence.LOW}

    @pytest.mark.parametrize(
        "value", ["vnzb ukyquf", "omq amqltypznj", "itnc ptx8 wk2t m3mk q4lx 7bcx vdes wrwh"]
    )
    def test_a_phrase_of_no_language_is_a_password(self, value):
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
    def test_a_phrase_of_any_language_is_none(self, value):
        for noun in (Noun.PASSWORD, Noun.SECRET):
            assert weigh(value.encode(), noun, "quoted").confidence is None

    def test_a_long_number_is_a_secret_unless_it_is_round(self):
        assert weigh(b"4431214082403941", Noun.SECRET, "bare").confidence is Confidence.MEDIUM
        assert weigh(b"4431214082000000", Noun.SECRET, "bare").confidence is not Confidence.MEDIUM
        assert weigh(b"443121408", Noun.SECRET, "bare").confidence is not Confidence.MEDIUM

    def test_bytes_that_count_up_are_filled_in(self):
        assert weigh(bytes(range(16)).hex().encode(), Noun.SECRET, "quoted").confidence in {
            None,
            Confidence.LOW,
        }
        assert weigh(bytes(range(250, 10, -15)).hex().encode(), Noun.SECRET, "quoted").confidence in {
            None,
            Confidence.LOW,
        }
        assert weigh(drawn("0123456789abcdef", 32).encode(), Noun.SECRET, "quoted").confidence is not None

    @pytest.mark.parametrize(
        "value",
        ["sunshine", "blue", "sunshine!", "copper-kettle", "paq;cow*sun", "veryPriv@ate", "IZ?PCT?OFX?LWO"],
    )
    def test_a_word_is_a_password_where_it_is_set_outright(self, value):
        assert (
            weigh(value.encode(), Noun.PASSWORD, "quoted", (DIRECT_ASSIGNMENT,)).confidence
            is Confidence.MEDIUM
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
    def test_types_states_labels_and_names_are_none_even_there(self, value):
        assert weigh(value.encode(), Noun.PASSWORD, "quoted", (DIRECT_ASSIGNMENT,)).confidence in {
            None,
            Confidence.LOW,
        }

    def test_words_with_marks_are_names_where_nothing_is_quoted(self):
        assert weigh(b"copper-kettle", Noun.PASSWORD, "bare", (DIRECT_ASSIGNMENT,)).confidence is None

    @pytest.mark.parametrize("value", ["Welcome1", "Oracle123", "Admin12345", "harbor2024!"])
    def test_numbers_behind_a_word_make_it_a_password_where_it_is_set_outright(self, value):
        assert (
            weigh(value.encode(), Noun.PASSWORD, "bare", (DIRECT_ASSIGNMENT,)).confidence is Confidence.MEDIUM
        )

    @pytest.mark.parametrize(
        "value", ["qwerty12345", "test123456", "1qaz2wsx", "password1", "MyPassword99", "secret123"]
    )
    def test_numbers_behind_a_stand_in_do_not(self, value):
        assert weigh(value.encode(), Noun.PASSWORD, "bare", (DIRECT_ASSIGNMENT,)).confidence in {
            None,
            Confidence.LOW,
        }

    def test_letters_before_a_padding_are_base64_unless_they_spell_something(self):
        for noun in (Noun.SECRET, Noun.KEY):
            assert weigh(b"jsvxFBtnPBp=", noun, "quoted").confidence is Confidence.MEDIUM
            assert weigh(b"accessToken=", noun, "quoted").confidence is not Confidence.MEDIUM


class TestPlace:
    @pytest.mark.parametrize(
        "text",
        [
            "password = 'sunshine'",
            '{"password": "sunshine"}',
            "$config['db_password'] = 'sunshine';",
            'var password string = "sunshine"',
            'const password: string = "sunshine";',
            "database:\n  password: sunshine\n",
            "database:\n  password: sunshine  # ours\n",
            "docker run -e DB_PASSWORD=sunshine -d db",
            "spring.datasource.password = sunshine\n",
            "<password>sunshine</password>",
            "CREATE USER crm WITH PASSWORD 'sunshine';",
            "alter user crm identified by 'sunshine';",
        ],
    )
    def test_a_word_that_is_set_outright_is_told(self, text):
        assert values(text) == ["sunshine"]

    @pytest.mark.parametrize(
        "text",
        [
            "CheckUserPassword('sunshine', given)",
            "t.pass('sunshine')",
            "verify('password', 'sunshine')",
            "password = config.get('sunshine')",
            "columns = [`password`, `sunshine`]",
            "status = ok ? 'pass' : 'sunshine';",
            "no password 'sunshine' is known",
            "// First pass: sunshine\n",
            "Password: sunshine in the morning\n",
            "the password: sunshine\n",
            '["user", "pass:sunshine"]',
            "the password was sunshine\n",
            "password_field = 'sunshine'",
            "secret = 'sunshine'",
        ],
    )
    def test_a_word_beside_a_password_is_none(self, text):
        assert values(text) == []

    def test_a_drawn_value_is_one_whatever_is_done_with_it(self):
        value = drawn("0123456789abcdef", 32)
        assert values(f"resetToken = '{value}'; inputPassword: '{value[:16]}'") == [value, value[:16]]
        assert values("resetPassword: 'Wint3r!Oslo'; nextToken: '" + value + "'") == []

    @pytest.mark.parametrize(
        "text",
        [
            "authKey := []byte{%s}",
            "key = new byte[] {%s};",
            "seed: [16]byte{%s},",
            "SecretKey = []byte{\n    %s,\n}",
        ],
    )
    def test_an_array_of_bytes_is_judged_as_its_digits(self, text):
        chance = random.Random(7)
        numbers = [chance.randrange(256) for _ in range(16)]
        for array in (", ".join(map(str, numbers)), ",".join(f"0x{number:02x}" for number in numbers)):
            assert values(text % array) == [array]

    @pytest.mark.parametrize(
        "text",
        [
            "key := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}",
            "key := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}",
            "key := []byte{71, 12, 250, 9}",
            "keySizes := []byte{71, 12, 250, 9, 33, 180, 66, 14, 92, 201}",
            "keys := []byte{710, 12, 250, 9, 33, 180, 66, 14, 92, 201}",
            "key := []byte{71, 12, 250, 9, 33, 180, 66, 14, 92, next}",
        ],
    )
    def test_an_array_that_counts_or_is_no_key_is_none(self, text):
        assert values(text) == []

    @pytest.mark.parametrize("lifetime", ["static", "a", "b", "v", "de"])
    def test_a_type_in_rust_may_have_any_lifetime(self, lifetime):
        value = drawn(BASE62, 24, lifetime)
        assert values(f'const API_TOKEN: &\'{lifetime} str = "{value}";') == [value]

    def test_a_user_may_stand_before_his_password(self):
        assert values("ID:crm/PW:k8s!Lm2Zx9v\n(User: crm/Password:k8s!Lm2Zx9v)\n") == ["k8s!Lm2Zx9v"] * 2
        assert values("https://crm.corp/a:b/token:k8sq0Lm2Zx9v\n") == []

    def test_an_option_may_have_one_dash(self):
        assert values("run -password k8s!Lm2Zx9v -secret k8sq0Lm2Zx9v\n") == ["k8s!Lm2Zx9v", "k8sq0Lm2Zx9v"]
        assert values("the x-token k8sq0Lm2Zx9v of reset-password k8s!Lm2Zx9v\n") == []

    def test_a_password_may_begin_with_a_mark_that_tags_have(self):
        assert values("password: !Dd5G4s9\n") == ["!Dd5G4s9"]
        assert values("password: !Ref Wint3rOslo\npassword: !vault |\n") == []

    def test_a_value_may_have_spaces_where_it_is_quoted(self):
        assert values("password: 'vnzb ukyquf'") == ["vnzb ukyquf"]
        assert values('"Token": "Token suksesvol herroep"; password = \'a b\' + c') == []
        assert values("password: vnzb ukyquf\n") == []  # a sentence

    def test_four_letters_that_nobody_would_write_are_a_password(self):
        assert values("MYSQL_ROOT_PASSWORD=xqdk\npassword: 'mzqk'\n") == ["xqdk", "mzqk"]
        assert (
            values("password: true\npassword = 'root'\ntoken = 'mzqk'\nauth = ['userpass', 'oidc']\n") == []
        )

    def test_an_object_that_is_written_as_a_text_has_its_values_judged(self):
        drawn_value = drawn("0123456789abcdef", 32)
        for text in (
            rf'''"Apitoken": "{{\"name\": \"root\", \"sig\": \"{drawn_value}\"}}"''',
            f"""API_TOKEN='{{"user": "root", "sig": "{drawn_value}"}}'""",
        ):
            assert values(text) == [drawn_value], text
        assert values(rf'''"Apitoken": "{{\"name\": \"root\", \"client_id\": \"{drawn_value}\"}}"''') == []
        assert values(r'''"Apitoken": "{\"name\": \"configuration-of-tokens\"}"''') == []

    @pytest.mark.parametrize("quote", [r"\"", r"\\\"", "&quot;", "&#34;"])
    def test_quotes_may_be_escaped_once_or_twice(self, quote):
        assert values(f"x = {quote}password{quote}: {quote}k8s-Prod!7x{quote}") == ["k8s-Prod!7x"]

    def test_a_type_or_a_factory_wraps_the_value(self):
        assert values('password = new StringCredentialValue("k8s-Prod!7x");') == ["k8s-Prod!7x"]
        assert values('Secret secret = Secret.fromString("k8sq0Lm2Zx9v");') == ["k8sq0Lm2Zx9v"]
        assert values(
            'password = new StringValue("k8s-Prod!7x"); password = new StringLookup("k8s-Prod!8x");'
        ) == ["k8s-Prod!7x"]
        assert (
            values('secret = new SecretLookup("k8sq0Lm2Zx9v"); secret = Secret.lookup("k8sq0Lm2Zx9v");') == []
        )

    def test_the_value_may_stand_in_the_line_behind_its_sign(self):
        assert values('String PASSWORD =\n    "k8s-Prod!7x";') == ["k8s-Prod!7x"]
        assert values('password = (\n    "k8s-Prod!7x"\n)') == ["k8s-Prod!7x"]
        assert (
            values("names = ['password',\n    'k8s-Prod!7x']\npassword:\n    'algorithm': 'k8s-Prod!7x'\n")
            == []
        )

    def test_options_of_windows_are_no_addresses(self):
        assert values("msbuild /p:Password=k8s!Lm2Zx9v\nrun /password:k8s!Lm2Zx9v\n") == ["k8s!Lm2Zx9v"] * 2
        assert values("GET /users/:token=k8sq0Lm2Zx9v\npath/token:k8sq0Lm2Zx9v\n") == []

    def test_user_and_password_that_are_encoded_for_a_header(self):
        assert (
            values('auth = base64.b64encode(b"crm:k8s-Prod!7x"); btoa("crm:k8s-Prod!7x")')
            == ["k8s-Prod!7x"] * 2
        )
        assert (
            values('base64.b64encode(b"user:password"); btoa(user + ":" + password); btoa("text/html:utf8")')
            == []
        )

    def test_the_password_of_an_account_whose_plugin_is_named(self):
        assert values("ALTER USER x IDENTIFIED WITH mysql_native_password BY 'k8s!Lm2Zx9v';") == [
            "k8s!Lm2Zx9v"
        ]

    def test_a_column_of_a_table_and_a_serialized_array_name_their_value(self):
        assert values("Password | `k8s!Lm2Zx9v`\n") == ["k8s!Lm2Zx9v"]
        assert values('a:1:{s:8:"password";s:11:"k8s!Lm2Zx9v";}') == ["k8s!Lm2Zx9v"]

    def test_a_value_ends_with_the_quote_that_it_began_with(self):
        assert values("""password = "q8mZ'7`kLw" """) == ["q8mZ'7`kLw"]
        assert values('Password string `koanf:"password" yaml:"password"`') == []

    def test_what_a_sentence_says_of_a_password_is_none(self):
        assert values("Het wachtwoord is gewijzigd.\n") == []
        assert values("the password is Wint3r!Oslo\n") == ["Wint3r!Oslo"]

    def test_the_first_of_several_arguments_is_not_the_password(self):
        assert values('CheckUserPassword("jxqzvk", given)') == []
        assert values('setPassword("jxqzvk")') == ["jxqzvk"]

    def test_a_value_is_named_by_the_rule_that_knows_it_wherever_else_it_stands(self):
        text = b"password: xvkqzwpl\n\ncurl -u crm:xvkqzwpl https://crm.corp\n"
        told = hits_at_path(scan_content(ruleset(), text, Confidence.MEDIUM), b"README.md")
        assert [(hit.rule.id, hit.line) for _, hit in told] == [("curl_user", 3)]

    def test_an_unquoted_value_is_marked_where_it_would_be_code(self):
        assert [hit.bare for hit in hits("password = Wint3r!Oslo\n")] == [True]
        for text in (
            "# password = Wint3r!Oslo\n",
            'x = "a;password=Wint3r!Oslo"\n',
            "password = 'Wint3r!Oslo'\n",
        ):
            assert [hit.bare for hit in hits(text)] == [False], text
        assert [hit.bare for hit in hits("/* password = Wint3r!Oslo */\n")] == [False]

    def test_languages_with_quotes_are_code_and_configuration_is_not(self):
        assert all(map(is_code_file, (b"a/b.py", b"x.JS", b"lib.tar!main.go", b"q.sql")))
        assert not any(
            map(
                is_code_file,
                (b".env", b"a.yml", b"x.properties", b"run.sh", b"Dockerfile", b"py", b"notes.txt"),
            )
        )

    def test_what_is_unquoted_is_told_of_configuration_only(self):
        found = scan_content(
            ruleset(), b"password = Wint3r!Oslo\ntoken = 'k8sq0Lm2Zx9v'\n", Confidence.MEDIUM
        )
        assert [reveal(hit.secret) for _, hit in hits_at_path(found, b"a.conf")] == [
            "Wint3r!Oslo",
            "k8sq0Lm2Zx9v",
        ]
        assert [reveal(hit.secret) for _, hit in hits_at_path(found, b"a.py")] == ["k8sq0Lm2Zx9v"]

    def test_what_nobody_would_call_a_variable_is_a_value_in_code_too(self):
        found = scan_content(
            ruleset(), b"text = `\ntoken: k8sq0Lm2Zx9vQ4tRw\nsecret: clientSecretValue2\n`", Confidence.MEDIUM
        )
        assert [reveal(hit.secret) for _, hit in hits_at_path(found, b"a.go")] == ["k8sq0Lm2Zx9vQ4tRw"]

    def test_what_a_command_is_handed_is_told_in_code_too(self):
        found = scan_content(
            ruleset(), b"cmdkey /add:srv01 /user:CORP\\crm /pass:Lagoon287%\n", Confidence.MEDIUM
        )
        assert [reveal(hit.secret) for _, hit in hits_at_path(found, b"setup.ps1")] == ["Lagoon287%"]

    def test_two_words_with_a_point_are_a_member_where_code_may_stand(self):
        for text in (
            'password = "copper.Kettle92"',
            "password: copper.Kettle92\n",
            "PASSWORD=copper.kettle92\n",
            "passwd = 'copper.Kettle9'",
        ):
            assert len(values(text)) == 1, text
        for text in (
            "login(password = copper.Kettle92)",
            'token = "copper.Kettle92"',
            "password: copper.Kettle9\n",
            'password = "users.name92"',
        ):
            assert values(text) == [], text
        found = scan_content(ruleset(), b"password = copper.Kettle92\n", Confidence.MEDIUM)
        assert hits_at_path(found, b"a.js") == []

    def test_a_digest_is_a_packages_only_under_its_heading(self):
        digest = drawn("0123456789abcdef", 40)
        assert values(f"SPEC CHECKSUMS:\n  KeyPassword: {digest}\n") == []
        assert values(f"SPEC CHECKSUMS:\n  A: {digest}\n\nKeyPassword: {digest}\n") == [digest]

    def test_a_parameter_ends_before_an_object_in_the_next(self):
        assert values("x = 'auth_user=crm&auth_pwd=k8sLm2Zx9v&data={ 1 }'") == ["k8sLm2Zx9v"]

    def test_the_result_of_a_call_is_not_its_argument(self):
        assert values('password = vault.lookup("k8s-Prod!7x")') == []
        assert values('password = String::from("k8s-Prod!7x")') == ["k8s-Prod!7x"]

    def test_an_argument_is_a_value_where_the_method_is_called_like_one(self):
        assert values('x.setPassword("k8s-Prod!7x"); y.token("k8sq0Lm2Zx9v")') == [
            "k8s-Prod!7x",
            "k8sq0Lm2Zx9v",
        ]
        assert (
            values('splitpasswd("k8s-Prod!7x"); passValue("k8s-Prod!7x"); password.split("k8s-Prod!7x")')
            == []
        )

    def test_the_argument_behind_a_variable_is_another_one(self):
        assert values('quote(self.password, "k8s-Prod!7x"); f(token, "k8sq0Lm2Zx9v")') == []
        assert values('put("password", "k8s-Prod!7x"); set(API_TOKEN, "k8sq0Lm2Zx9v")') == [
            "k8s-Prod!7x",
            "k8sq0Lm2Zx9v",
        ]

    def test_the_name_of_a_group_in_a_pattern_is_no_element(self):
        assert values("re.compile('(?P<token>k8sq0Lm2Zx9v)|(?<secret>k8sq0Lm2Zx9v)')") == []

    def test_a_piece_of_an_expression_is_no_value(self):
        assert values('token = "abc12:" + user') == []
        assert values('password = "%s-Abc1" % name') == []

    def test_where_a_value_ends(self):
        assert values("GET /x?token=k8sq0Lm2Zx9v&page=2") == ["k8sq0Lm2Zx9v"]
        assert values("Server=db;Password=k8s!Lm2Zx9v;Timeout=3") == ["k8s!Lm2Zx9v"]
        assert values("{user=ops, password=k8s!Lm2Zx9v, pool=5}") == ["k8s!Lm2Zx9v"]

    def test_binary_data_is_no_value(self):
        assert hits(b'\x00\x93pw="\xff\xfe\x81\x80\x99\xa0\xb1\xc2\xd3"\n', Confidence.LOW) == []


class TestBadInput:
    def test_a_value_of_a_megabyte(self):
        text = 'password = "' + drawn(BASE62, 1_000) * 1_000 + '"\n'
        assert hits(text, Confidence.LOW) == []
        assert hits("password=" + drawn(BASE62, 1_000) * 1_000, Confidence.LOW) == []

    def test_a_line_with_ten_thousand_assignments(self):
        expected = [f"k8s!{drawn(BASE62, 8, n)}" for n in range(10_000)]
        assert values(" ".join(f"password='{value}'" for value in expected)) == expected

    def test_every_name_before_one_value(self):
        text = "password token secret api_key " * 2_000 + '= "k8s!Lm2Zx9v"\n'
        assert values(text) == ["k8s!Lm2Zx9v"]

    def test_every_rule_on_the_same_text_names_it_once(self):
        token = github_token("all")
        text = f"https://u:{token}@h.io/?token={token}&password={token} Authorization: Bearer {token}\nAPI_KEY={token}\n"
        found = hits(text * 50)
        assert {hit.rule.id for hit in found} == {"github_pat_classic"}
        assert len({hit.start for hit in found}) == len(found) == 250

    def test_a_million_near_misses(self):
        lines = [
            f"password = get_{n}()\ntoken: config.{n}\nsecret = '${{{n}}}'\napi_key=<{n}>\n"
            for n in range(5_000)
        ]
        began = time.process_time()
        assert hits("".join(lines)) == []
        assert time.process_time() - began < 5

    def test_names_without_end(self):
        for text in (
            "password" * 50_000 + '="k8s!Lm2Zx9v"',
            "password" + " " * 200_000 + '= "k8s!Lm2Zx9v"',
            "password=" * 50_000,
        ):
            assert len(hits(text)) <= 1


TEXT_OBJECT = (
    '{"pineToken": "{\\"user\\": \\"mario\\", \\"client_id\\": \\"a441744a11e8de6e4e4e9b7ebc112e80\\"}",\n'
)
BY_THE_LINE = {
    "an object that is written as a text": (
        TEXT_OBJECT + '  {"name": "DB_PASSWORD", "value": "«lagoon-nebula-90-thistle»"},\n'
    ),
    "a name in the line before": '- name: DB_PASSWORD\n  value: "«Wint3r!Oslo»"\n',
    "a statement over several lines": "CREATE USER crm\n  IDENTIFIED BY '«Wint3r!Oslo»'\n",
    "nothing goes on": 'token = "«Wint3r-Oslo-9»"\nregion\n',
    "the same line again": "password = '«Wint3r!Oslo»'\nx\npassword = 'Wint3r!Oslo'\n",
}
BEYOND_THE_LINE = {
    "a sentence": "the tree is\nidentified by 'Wint3r!Oslo'\n",
    "an expression goes on": 'token = "Wint3r-Oslo-9"\n+ region\n',
    "an expression goes on behind a space": 'token = "Wint3r-Oslo-9"\n % region\n',
}


@pytest.mark.parametrize("text", BY_THE_LINE.values(), ids=BY_THE_LINE)
def test_a_value_is_judged_by_its_line_and_where_its_name_is_not_there_by_more(text):
    plain, (wanted,) = split_marked_values(text)
    assert wanted in values(plain)


@pytest.mark.parametrize("text", BEYOND_THE_LINE.values(), ids=BEYOND_THE_LINE)
def test_the_lines_around_a_value_speak_against_it(text):
    assert values(text) == []


class TestMembers:
    """Lists and mappings that have a plural for a name."""

    VALUES = tuple(drawn(BASE62, 24, seed) for seed in range(3))

    @pytest.mark.parametrize(
        "text",
        [
            'TOKENS = ["{}", "{}", "{}"]',
            "secrets = ['{}',\n    '{}',  \n '{}']",
            'api_keys = {{"a": "{}", \'b\': "{}", "c.d": "{}"}}',
            'var apiKeys = map[string]string{{\n\t"a": "{}",\n\t"b": "{}",\n\t"c": "{}",\n}}',
            'secrets := [...]string{{"{}", "{}", "{}"}}',
            "my %passwords = (a => '{}', b => '{}', c => '{}');",
            'String[] tokens = new String[] {{ "{}", "{}", "{}" }};',
            'x = {{"accessKeys": {{ eu: "{}", us: "{}", de: "{}" }}}}',
            'x = "tokens = {{\\n  \\"a\\": \\"{}\\",\\n  \\"b\\": \\"{}\\", \\"c\\": \\"{}\\"}}"',
            "tokens:\n  - {}\n  - {}\n  - {}\n",
            "tokens:\r\n- {}\r\n- '{}'\r\n- \"{}\"",
            "a:\n  passwords:\n    x: {}\n    y: {}  # old\n    z: {}\n  z: 1\n",
        ],
    )
    def test_each_is_judged(self, text):
        assert values(text.format(*self.VALUES)) == list(self.VALUES)

    @pytest.mark.parametrize(
        "text",
        [
            'TOKENS = ["{}", other("{}")]',
            'tokens = [{{"a": "{}"}}, {{"b": "{}"}}]',
            "tokens:\n  - {}\nothers:\n  - {}\n",
            "tokens:\n    a: {}\n  b: {}\n",
            'tokens = {{"a": "{}"}}; others = {{"b": "{}"}}',
        ],
    )
    def test_it_ends_where_something_else_stands(self, text):
        assert self.VALUES[1] not in values(text.format(*self.VALUES))

    def test_what_is_only_about_one_is_none(self):
        assert values('tokens = {{"id": "{}", "key_url": "{}"}}'.format(*self.VALUES)) == []
        assert values('dkim_tokens = ["{}", "{}"]'.format(*self.VALUES)) == []

    def test_one_that_is_written_with_escapes_is_read_to_its_end(self):
        many = [drawn(BASE62, 24, seed) for seed in range(40)]
        assert values('x = "tokens = [' + ", ".join(f'\\"{value}\\"' for value in many) + ']"') == many

    def test_words_are_none(self):
        assert (
            values('tokens = ["identifier", "left-paren", "T_STRING"]; passwords = ["sunshine", "letmein"]')
            == []
        )

    @pytest.mark.parametrize(
        "more",
        [
            '"plain", ',
            '"tokens=[", ',
            '",tokens=[k=",',
            'k:"tokens=[",',
            "tokens=[k=",
            "\n- 'tokens: ['",
            "\ntokens: (k:",
        ],
    )
    def test_a_list_without_end_takes_no_longer_for_it(self, more):
        started = time.process_time()
        assert values("tokens = [" + more * 100_000) == values("tokens:" + more * 100_000) == []
        assert time.process_time() - started < 15


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
def test_a_password_has_letters_of_any_encoding(encoding):
    found = hits('password = "Xk9ö2vLp8Rt!"\n'.encode(encoding))
    assert [reveal(hit.secret) for hit in found] == ["Xk9ö2vLp8Rt!"]


@pytest.mark.parametrize(
    "value",
    [b"\xf6\xf7\x80\x81\x90\x99abc!Xk92", b"Xk9\x852vLp8Rt!", b"Xk9\xd72vLp8Rt!", b"\xe4\xf6\xfcXk92vLp8Rt!"],
)
def test_what_is_no_text_is_no_password(value):
    assert hits(b'password = "' + value + b'"\n') == []


def test_the_example_of_the_standard_is_no_finding():
    assert values("Authorization: Basic " + base64.b64encode(b"Aladdin:open sesame").decode() + "\n") == []
