"""Manuals, logs, licences, translations and lists of packages have no findings; similar credentials do."""

import pytest

from outcrop.scanner.generic.randomness import is_made_of_words
from tests.support.rulesets import BASE64, drawn, values

SECRET = drawn(BASE64, 40, "beside prose")


@pytest.mark.parametrize(
    "text",
    [
        "PASS: vers7\nPASS: ld-elf/pr19617c\n",
        "FAIL: a.exp\nPASS: gdb.base/bitfields2.exp: set print sevenbit-strings\n",
        "=== RUN   TestVers7\n--- PASS: TestVers7x9 (0.00s)\n",
        "    --- PASS: TestSome/of_x86-64_9 (0.00s)\nPASS\n",
    ],
)
def test_the_result_of_a_test_is_no_password(text):
    assert values(text) == []


def test_a_password_named_pass_beside_a_user_is_found():
    assert values("USER: crm\nPASS: kq8-Zw2v\n\nUSER: ops\nPASS: pW7!xkqz\n") == ["kq8-Zw2v", "pW7!xkqz"]


@pytest.mark.parametrize(
    "text",
    [
        r".B  --passphrase \fIstring\fR",
        r"\fB\-P\fP,\ \fB\-\-passwd=DATEI\fP",
        r"OPTIONS (SET password \*(Aqpublic\*(Aq);",
        r"://\[lB]<user>\[lB]:<password>\[rB]@\[rB]<hostname>\[lB]",
        "       --ftp-password=LOZINKA      postavlja ftp lozinku\n",
        "    --ask-password -user=foo --password --inputbox\n",
    ],
)
def test_the_name_of_an_argument_in_a_manual_is_no_password(text):
    assert values(text) == []


@pytest.mark.parametrize(
    "text",
    [
        'problem identified by "jamesh"\n',
        "Removes the directory identified by `xpathqz`.\n",
        "    gnutls_utf8_password_normalize: avoid use of strlen()\n",
        " * @PSK_8:\t8-PSK modulation\n",
        "&ldquo;secret:1&rdquo;, &ldquo;secret:2&rdquo;, ...",
        "License: LGPLv3+_or_GPLv2+\n",
        "(GnuPG key: 0x7EC2DBB6F4DBF434).\n",
        '    ChallengePassword("1.2.840.113549.1.9.7"),\n',
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n",
        "<commons.releaseManagerKey>B6E73D84EA4FCC47166087253FAAD2CD5ECBB314</commons.releaseManagerKey>",
        "passwd:         files\n",
        "  PWD: '/Users/maciej',\n",
        "PWD=/home/crm/Project9/x\n",
    ],
)
def test_documents_and_system_settings_have_no_findings(text):
    assert values(text) == []


@pytest.mark.parametrize(
    "text",
    [
        '    { "Imports.a.password", "\\u532F\\u5165\\u5BC6\\u78BC" },',
        '    { "key.password", "Schl\\u00FCsselkennwort" },',
        "login.password=\\u30D1\\u30B9\\u30EF\\u30FC\\u30C9\n",
    ],
)
def test_a_translation_in_unicode_escapes_is_no_password(text):
    assert values(text) == []


def test_a_password_may_contain_an_escape():
    assert values('"password": "kq8\\u0026Zw2v!x"') == ["kq8\\u0026Zw2v!x"]


@pytest.mark.parametrize(
    "text",
    [
        '#define SSL_TXT_aPSK "aPSK"\n',
        "vscodeGitAskpassMain: env.get('VSCODE_GIT_ASKPASS_MAIN'),\n",
        "[ 'crc-16-buypass',   'Crc16Buypass', 0x18005 ]\n",
        "'Test2::Event::Pass'    => 'cpan',\n",
        "into_iter<proc_macro::TokenTree>_RNvXs8_NtCsgE1KSLy2FWc_4core6option",
        "pri_psk->keyid and pri_psk->main_keyid.\n",
        "strlen_pass::before_dom_children): Comment spelling fixes.\n",
        "(OSSL_KEYMGMT_SELECT_PRIVATE_KEY | OSSL_KEYMGMT_SELECT_PUBLIC_KEY)\n",
        "  cygwin* | mingw* | pw32* | cegcc*)\n",
        "    my $pwd = `cmd /c cd`;\n",
        '    $pwd_cmd = "$sh -c pwd"\n',
        "i_pwd='define'\n",
        '"spring.user.password=a-password", "spring.mvc.servlet.path=/custom/x9/path"',
        '"spring.rabbitmq.password:secret", "spring.rabbitmq.virtual_host:/vhost",',
        "for (let pass = 0;pass < MAX_PASSES; pass++)\n",
    ],
)
def test_names_in_code_are_no_passwords(text):
    assert values(text) == []


def test_a_password_in_sql_may_be_in_the_line_after_its_user():
    assert values("CREATE USER crm\n  IDENTIFIED BY 'Wint3r!Oslo';\n") == ["Wint3r!Oslo"]


@pytest.mark.parametrize(
    "path",
    [
        "docs.aws.amazon.com/AmazonS3/latest/dev/UploadingObjects.html",
        "docs.aws.amazon.com/AWSEC2/latest/UserGuide/EBSSnapshots.html",
        'arn:aws:iam::*:role/service-role/AmazonSecurityLakeS3ReplicationRole"',
        '"aws": "AllowEc2InstancesWithEncryptedEbsVolumes"',
        f"aws_managed_rules.json.gz,sha256=BS-{SECRET.replace('+', 'x').replace('/', 'y')},24366",
    ],
)
def test_a_path_a_name_and_a_digest_beside_an_issuer_are_no_key(path):
    assert values(path) == []


def test_random_values_are_not_made_of_words():
    random_values = [drawn(BASE64, 20 + number % 21, number) for number in range(2_000)]
    assert sum(map(is_made_of_words, random_values)) <= 1
    assert not is_made_of_words("0123456789abcdef" * 2), "hexadecimal digits are no words"
    assert is_made_of_words("com/AmazonS3/latest/dev/UploadingObjects")
