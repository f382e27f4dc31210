"""Values beside their names are judged, and only credentials are reported."""

import base64
import random
import string

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.generic.context import is_code_file
from outcrop.scanner.rules.example_templates import split_marked_values
from outcrop.sources.located import applicable_hits
from tests.support.growth import grows_linearly
from tests.support.rulesets import github_token, hits, ruleset, values

BASE62 = string.ascii_letters + string.digits


def random_text(alphabet: str, length: int, seed: object = 1) -> str:
    """Return random characters of an alphabet; the same for the same seed."""
    chance = random.Random(f"{seed} {alphabet} {length}")
    return "".join(chance.choice(alphabet) for _ in range(length))


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
def test_a_word_in_a_direct_assignment_is_reported(text):
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
def test_a_word_in_another_place_is_not_reported(text):
    assert values(text) == []


def test_a_random_value_after_a_name_with_a_verb_is_found():
    value = random_text("0123456789abcdef", 32)
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
def test_an_array_of_bytes_is_judged_as_hexadecimal_digits(text):
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
def test_an_array_that_is_no_random_key_is_not_reported(text):
    assert values(text) == []


@pytest.mark.parametrize("lifetime", ["static", "a", "b", "v", "de"])
def test_a_rust_type_may_have_any_lifetime(lifetime):
    value = random_text(BASE62, 24, lifetime)
    assert values(f'const API_TOKEN: &\'{lifetime} str = "{value}";') == [value]


def test_a_user_may_be_before_the_password():
    assert values("ID:crm/PW:k8s!Lm2Zx9v\n(User: crm/Password:k8s!Lm2Zx9v)\n") == ["k8s!Lm2Zx9v"] * 2
    assert values("https://crm.corp/a:b/token:k8sq0Lm2Zx9v\n") == []


def test_an_option_may_have_one_dash():
    assert values("run -password k8s!Lm2Zx9v -secret k8sq0Lm2Zx9v\n") == ["k8s!Lm2Zx9v", "k8sq0Lm2Zx9v"]
    assert values("the x-token k8sq0Lm2Zx9v of reset-password k8s!Lm2Zx9v\n") == []


def test_a_password_may_begin_with_an_exclamation_mark():
    assert values("password: !Dd5G4s9\n") == ["!Dd5G4s9"]
    assert values("password: !Ref Wint3rOslo\npassword: !vault |\n") == []


def test_a_quoted_value_may_contain_spaces():
    assert values("password: 'vnzb ukyquf'") == ["vnzb ukyquf"]
    assert values('"Token": "Token suksesvol herroep"; password = \'a b\' + c') == []
    assert values("password: vnzb ukyquf\n") == []  # a sentence


def test_four_random_letters_are_a_password():
    assert values("MYSQL_ROOT_PASSWORD=xqdk\npassword: 'mzqk'\n") == ["xqdk", "mzqk"]
    assert values("password: true\npassword = 'root'\ntoken = 'mzqk'\nauth = ['userpass', 'oidc']\n") == []


def test_the_members_of_an_object_in_a_string_are_judged():
    value = random_text("0123456789abcdef", 32)
    for text in (
        rf'''"Apitoken": "{{\"name\": \"root\", \"sig\": \"{value}\"}}"''',
        f"""API_TOKEN='{{"user": "root", "sig": "{value}"}}'""",
    ):
        assert values(text) == [value], text
    assert values(rf'''"Apitoken": "{{\"name\": \"root\", \"client_id\": \"{value}\"}}"''') == []
    assert values(r'''"Apitoken": "{\"name\": \"configuration-of-tokens\"}"''') == []


@pytest.mark.parametrize("quote", [r"\"", r"\\\"", "&quot;", "&#34;"])
def test_quotes_may_be_escaped_once_or_twice(quote):
    assert values(f"x = {quote}password{quote}: {quote}k8s-Prod!7x{quote}") == ["k8s-Prod!7x"]


def test_a_value_may_be_wrapped_in_a_type_or_a_factory():
    assert values('password = new StringCredentialValue("k8s-Prod!7x");') == ["k8s-Prod!7x"]
    assert values('Secret secret = Secret.fromString("k8sq0Lm2Zx9v");') == ["k8sq0Lm2Zx9v"]
    assert values(
        'password = new StringValue("k8s-Prod!7x"); password = new StringLookup("k8s-Prod!8x");'
    ) == ["k8s-Prod!7x"]
    assert values('secret = new SecretLookup("k8sq0Lm2Zx9v"); secret = Secret.lookup("k8sq0Lm2Zx9v");') == []


def test_the_value_may_be_in_the_line_after_the_operator():
    assert values('String PASSWORD =\n    "k8s-Prod!7x";') == ["k8s-Prod!7x"]
    assert values('password = (\n    "k8s-Prod!7x"\n)') == ["k8s-Prod!7x"]
    assert (
        values("names = ['password',\n    'k8s-Prod!7x']\npassword:\n    'algorithm': 'k8s-Prod!7x'\n") == []
    )


def test_options_of_windows_commands_are_no_urls():
    assert values("msbuild /p:Password=k8s!Lm2Zx9v\nrun /password:k8s!Lm2Zx9v\n") == ["k8s!Lm2Zx9v"] * 2
    assert values("GET /users/:token=k8sq0Lm2Zx9v\npath/token:k8sq0Lm2Zx9v\n") == []


def test_a_user_and_password_that_code_encodes_for_a_header_are_found():
    assert (
        values('auth = base64.b64encode(b"crm:k8s-Prod!7x"); btoa("crm:k8s-Prod!7x")') == ["k8s-Prod!7x"] * 2
    )
    assert (
        values('base64.b64encode(b"user:password"); btoa(user + ":" + password); btoa("text/html:utf8")')
        == []
    )


def test_a_password_after_an_authentication_plugin_in_sql_is_found():
    assert values("ALTER USER x IDENTIFIED WITH mysql_native_password BY 'k8s!Lm2Zx9v';") == ["k8s!Lm2Zx9v"]


def test_a_table_row_and_a_serialized_array_name_their_value():
    assert values("Password | `k8s!Lm2Zx9v`\n") == ["k8s!Lm2Zx9v"]
    assert values('a:1:{s:8:"password";s:11:"k8s!Lm2Zx9v";}') == ["k8s!Lm2Zx9v"]


def test_a_value_ends_with_the_quote_with_which_it_begins():
    assert values("""password = "q8mZ'7`kLw" """) == ["q8mZ'7`kLw"]
    assert values('Password string `koanf:"password" yaml:"password"`') == []


def test_a_word_in_a_sentence_is_no_password():
    assert values("Het wachtwoord is gewijzigd.\n") == []
    assert values("the password is Wint3r!Oslo\n") == ["Wint3r!Oslo"]


def test_the_first_of_several_arguments_is_no_password():
    assert values('CheckUserPassword("jxqzvk", given)') == []
    assert values('setPassword("jxqzvk")') == ["jxqzvk"]


def test_a_value_is_reported_by_the_more_specific_rule():
    text = b"password: xvkqzwpl\n\ncurl -u crm:xvkqzwpl https://crm.corp\n"
    reported = applicable_hits(scan_content(ruleset(), text, Confidence.MEDIUM), b"README.md")
    assert [(hit.rule.id, hit.line) for _, hit in reported] == [("curl_user", 3)]


def test_an_unquoted_value_outside_of_strings_and_comments_is_bare():
    assert [hit.bare for hit in hits("password = Wint3r!Oslo\n")] == [True]
    for text in (
        "# password = Wint3r!Oslo\n",
        'x = "a;password=Wint3r!Oslo"\n',
        "password = 'Wint3r!Oslo'\n",
    ):
        assert [hit.bare for hit in hits(text)] == [False], text
    assert [hit.bare for hit in hits("/* password = Wint3r!Oslo */\n")] == [False]


def test_files_of_languages_that_quote_strings_are_code():
    assert all(map(is_code_file, (b"a/b.py", b"x.JS", b"lib.tar!main.go", b"q.sql")))
    assert not any(
        map(
            is_code_file,
            (b".env", b"a.yml", b"x.properties", b"run.sh", b"Dockerfile", b"py", b"notes.txt"),
        )
    )


def test_an_unquoted_value_is_only_reported_in_configuration():
    found = scan_content(ruleset(), b"password = Wint3r!Oslo\ntoken = 'k8sq0Lm2Zx9v'\n", Confidence.MEDIUM)
    assert [reveal(hit.secret) for _, hit in applicable_hits(found, b"a.conf")] == [
        "Wint3r!Oslo",
        "k8sq0Lm2Zx9v",
    ]
    assert [reveal(hit.secret) for _, hit in applicable_hits(found, b"a.py")] == ["k8sq0Lm2Zx9v"]


def test_an_unquoted_random_value_is_reported_in_code_too():
    found = scan_content(
        ruleset(), b"text = `\ntoken: k8sq0Lm2Zx9vQ4tRw\nsecret: clientSecretValue2\n`", Confidence.MEDIUM
    )
    assert [reveal(hit.secret) for _, hit in applicable_hits(found, b"a.go")] == ["k8sq0Lm2Zx9vQ4tRw"]


def test_the_argument_of_a_command_is_reported_in_code_too():
    found = scan_content(
        ruleset(), b"cmdkey /add:srv01 /user:CORP\\crm /pass:Lagoon287%\n", Confidence.MEDIUM
    )
    assert [reveal(hit.secret) for _, hit in applicable_hits(found, b"setup.ps1")] == ["Lagoon287%"]


def test_two_words_with_a_dot_are_a_password_only_where_they_are_no_member():
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
    assert applicable_hits(found, b"a.js") == []


def test_a_digest_below_a_heading_for_checksums_is_no_password():
    digest = random_text("0123456789abcdef", 40)
    assert values(f"SPEC CHECKSUMS:\n  KeyPassword: {digest}\n") == []
    assert values(f"SPEC CHECKSUMS:\n  A: {digest}\n\nKeyPassword: {digest}\n") == [digest]


def test_a_url_parameter_ends_before_the_next_one():
    assert values("x = 'auth_user=crm&auth_pwd=k8sLm2Zx9v&data={ 1 }'") == ["k8sLm2Zx9v"]


def test_the_argument_of_a_call_is_no_value_unless_the_call_converts_it():
    assert values('password = vault.lookup("k8s-Prod!7x")') == []
    assert values('password = String::from("k8s-Prod!7x")') == ["k8s-Prod!7x"]


def test_the_argument_of_a_method_with_a_credential_name_is_a_value():
    assert values('x.setPassword("k8s-Prod!7x"); y.token("k8sq0Lm2Zx9v")') == [
        "k8s-Prod!7x",
        "k8sq0Lm2Zx9v",
    ]
    assert values('splitpasswd("k8s-Prod!7x"); passValue("k8s-Prod!7x"); password.split("k8s-Prod!7x")') == []


def test_the_argument_after_a_variable_is_not_its_value():
    assert values('quote(self.password, "k8s-Prod!7x"); f(token, "k8sq0Lm2Zx9v")') == []
    assert values('put("password", "k8s-Prod!7x"); set(API_TOKEN, "k8sq0Lm2Zx9v")') == [
        "k8s-Prod!7x",
        "k8sq0Lm2Zx9v",
    ]


def test_a_named_group_of_a_regular_expression_is_no_xml_element():
    assert values("re.compile('(?P<token>k8sq0Lm2Zx9v)|(?<secret>k8sq0Lm2Zx9v)')") == []


def test_a_part_of_an_expression_is_no_value():
    assert values('token = "abc12:" + user') == []
    assert values('password = "%s-Abc1" % name') == []


def test_an_unquoted_value_ends_before_the_next_parameter():
    assert values("GET /x?token=k8sq0Lm2Zx9v&page=2") == ["k8sq0Lm2Zx9v"]
    assert values("Server=db;Password=k8s!Lm2Zx9v;Timeout=3") == ["k8s!Lm2Zx9v"]
    assert values("{user=ops, password=k8s!Lm2Zx9v, pool=5}") == ["k8s!Lm2Zx9v"]


def test_binary_data_is_no_value():
    assert hits(b'\x00\x93pw="\xff\xfe\x81\x80\x99\xa0\xb1\xc2\xd3"\n', Confidence.LOW) == []


def test_a_value_of_a_megabyte_is_no_finding():
    text = 'password = "' + random_text(BASE62, 1_000) * 1_000 + '"\n'
    assert hits(text, Confidence.LOW) == []
    assert hits("password=" + random_text(BASE62, 1_000) * 1_000, Confidence.LOW) == []


@pytest.mark.slow
def test_all_of_ten_thousand_assignments_in_one_line_are_found():
    expected = [f"k8s!{random_text(BASE62, 8, n)}" for n in range(10_000)]
    assert values(" ".join(f"password='{value}'" for value in expected)) == expected


def test_a_value_after_thousands_of_names_is_found():
    text = "password token secret api_key " * 2_000 + '= "k8s!Lm2Zx9v"\n'
    assert values(text) == ["k8s!Lm2Zx9v"]


def test_a_token_that_many_rules_match_is_reported_once():
    token = github_token("all")
    text = (
        f"https://u:{token}@h.io/?token={token}&password={token} Authorization: Bearer {token}\n"
        f"API_KEY={token}\n"
    )
    found = hits(text * 50)
    assert {hit.rule.id for hit in found} == {"github_pat_classic"}
    assert len({hit.start for hit in found}) == len(found) == 250


def test_many_near_misses_take_linear_time():
    def scan(count: int) -> None:
        lines = (
            f"password = get_{n}()\ntoken: config.{n}\nsecret = '${{{n}}}'\napi_key=<{n}>\n"
            for n in range(count)
        )
        assert hits("".join(lines)) == []

    assert grows_linearly(scan, 500)


def test_a_long_value_ends_before_the_next_assignment():
    """Otherwise each of many assignments in one line would be read to the end of the line."""
    token = random_text(BASE62, 450, 1)
    assert values(f'token="{token}=="') == [f"{token}=="]
    assert values(f"token={token}=token={token}") == [token]


def test_very_long_names_and_gaps_have_at_most_one_finding():
    for text in (
        "password" * 50_000 + '="k8s!Lm2Zx9v"',
        "password" + " " * 200_000 + '= "k8s!Lm2Zx9v"',
        "password=" * 50_000,
    ):
        assert len(hits(text)) <= 1


OBJECT_IN_STRING = (
    '{"pineToken": "{\\"user\\": \\"mario\\", \\"client_id\\": \\"a441744a11e8de6e4e4e9b7ebc112e80\\"}",\n'
)
BY_THE_LINE = {
    "an object in a string": (
        OBJECT_IN_STRING + '  {"name": "DB_PASSWORD", "value": "«lagoon-nebula-90-thistle»"},\n'
    ),
    "a name in the line before": '- name: DB_PASSWORD\n  value: "«Wint3r!Oslo»"\n',
    "a statement over several lines": "CREATE USER crm\n  IDENTIFIED BY '«Wint3r!Oslo»'\n",
    "no continuation in the next line": 'token = "«Wint3r-Oslo-9»"\nregion\n',
    "the same line again": "password = '«Wint3r!Oslo»'\nx\npassword = 'Wint3r!Oslo'\n",
}
BEYOND_THE_LINE = {
    "a sentence": "the tree is\nidentified by 'Wint3r!Oslo'\n",
    "an expression in the next line": 'token = "Wint3r-Oslo-9"\n+ region\n',
    "an expression after a space": 'token = "Wint3r-Oslo-9"\n % region\n',
}


@pytest.mark.parametrize("text", BY_THE_LINE.values(), ids=BY_THE_LINE)
def test_a_value_is_judged_by_its_line_or_by_the_lines_before_it(text):
    plain, (wanted,) = split_marked_values(text)
    assert wanted in values(plain)


@pytest.mark.parametrize("text", BEYOND_THE_LINE.values(), ids=BEYOND_THE_LINE)
def test_the_lines_around_a_value_can_count_against_it(text):
    assert values(text) == []


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
def test_a_password_with_letters_of_any_charset_is_found(encoding):
    found = hits('password = "Xk9ö2vLp8Rt!"\n'.encode(encoding))
    assert [reveal(hit.secret) for hit in found] == ["Xk9ö2vLp8Rt!"]


@pytest.mark.parametrize(
    "value",
    [b"\xf6\xf7\x80\x81\x90\x99abc!Xk92", b"Xk9\x852vLp8Rt!", b"Xk9\xd72vLp8Rt!", b"\xe4\xf6\xfcXk92vLp8Rt!"],
)
def test_binary_data_in_quotes_is_no_password(value):
    assert hits(b'password = "' + value + b'"\n') == []


def test_the_example_of_the_rfc_is_no_finding():
    assert values("Authorization: Basic " + base64.b64encode(b"Aladdin:open sesame").decode() + "\n") == []
