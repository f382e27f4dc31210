"""Passwords in columns are found: CSV of browsers and password managers, bars, aligned columns, SQL."""

import pytest

from outcrop.scanner.generic.find import find_in_tables
from outcrop.scanner.generic.tables import read_table
from tests.support.growth import CountingBytes, grows_linearly
from tests.support.rulesets import BASE62, drawn, hits, values

PASSWORD = "kX8#mQ2wL9"

TABLES = {
    "Chrome": f"name,url,username,password,note\ngit,https://git.corp,crm,{PASSWORD},\n"
    'mail,https://mail.corp,crm,sunnyharbour,"a, b"\n',
    "Firefox": f'"url","username","password","httpRealm","guid"\n"https://git.corp","crm","{PASSWORD}",,"{{1b2c}}"\n',
    "Bitwarden": "folder,favorite,type,name,notes,fields,reprompt,"
    "login_uri,login_username,login_password,login_totp\n"
    f",,login,Git,,,0,https://git.corp,crm,{PASSWORD},\n",
    "KeePass": f'"Group","Title","Username","Password","URL","Notes"\n"Root","x","crm","{PASSWORD}","https://git.corp",""\n',
    "line breaks of Windows": f"url,username,password\r\nhttps://git.corp,crm,{PASSWORD}\r\n",
    "byte order mark": f"\ufeffpassword,url\n{PASSWORD},https://git.corp\n",
    "no line break at the end": f"url,username,password\nhttps://git.corp,crm,{PASSWORD}",
    "tabs": f"host\tuser\tpassword\ndb.corp\tcrm\t{PASSWORD}\n",
    "semicolons": f"Benutzer;Passwort;Rolle\ncrm;{PASSWORD};admin\n",
    "Markdown": "# Logins\n\n| Host | User | Password |\n|------|:----:|---------:|\n"
    f"| db | crm | `{PASSWORD}` |\n\nthe end",
    "Markdown, bold": f"| **User** | **Password** |\n|---|---|\n| crm | **{PASSWORD}** |\n",
    "Markdown without outer bars": f"User | Password\n--- | ---\ncrm | {PASSWORD}\n",
    "psql": f" id | login |  password\n----+-------+------------\n  1 | crm   | {PASSWORD}\n(1 row)\n",
    "MySQL": "+----+------------+\n| id | password   |\n+----+------------+\n"
    f"|  1 | {PASSWORD} |\n+----+------------+\n",
    "aligned": f"NAME   USER   PASSWORD     NOTE\ndb1                        none\ndb2    crm    {PASSWORD}   a  b\n",
    "aligned, with a rule": f"Host      Password\n----      --------\nweb.corp  {PASSWORD}\n",
    "aligned, two words": f"SERVICE   CLIENT SECRET   OWNER\ncrm       {PASSWORD}      ops",
    "SQL": f"INSERT INTO users (id, login, password) VALUES (1, 'crm', '{PASSWORD}');",
    "SQL in lines": "insert into `users` (`id`,`login`,`passwd`,`at`)\nVALUES\n  (1,'ops',NULL,NOW()),\n"
    f"  (2,'crm','{PASSWORD}',NOW());",
    "SQL Server": f"INSERT INTO [dbo].[Users] ([Name],[Password]) VALUES (N'crm', N'{PASSWORD}')",
    "SQL in code": f"cursor.execute(\"INSERT INTO users (login, password) VALUES ('crm', '{PASSWORD}')\")",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_a_password_in_a_column_is_found_at_its_line_and_column(text):
    found = [hit for hit in hits(text.encode()) if text.encode()[hit.start : hit.end] == PASSWORD.encode()]
    assert len(found) == 1
    before = text[: text.index(PASSWORD)]
    assert (found[0].line, found[0].column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


def test_a_cell_may_contain_line_breaks():
    assert values(f'name,password,note\na,{PASSWORD},"one\ntwo, three\nfour"\nb,{PASSWORD}9,x\n') == [
        PASSWORD,
        f"{PASSWORD}9",
    ]


def test_a_word_in_a_column_for_tokens_is_no_token():
    token = drawn(BASE62, 32)
    assert values(f"| Service | API Key |\n|---|---|\n| maps | {token} |\n| mail | see-the-vault |\n") == [
        token
    ]
    assert values(f"service,token\nmaps,{token}\nmail,sunnyharbour\n") == [token]


@pytest.mark.parametrize(
    "text",
    [
        f"The login     of the password    is long\nand here      a text {PASSWORD} goes on\n",
        f"USER   PASSWORD     NOTE\nmore text than the column {PASSWORD}\n",
        f"USER   PASSWORD     NOTE\n\ncrm    {PASSWORD}   x\n",
        f"    password    \n    {PASSWORD}   \n",
    ],
    ids=["sentence", "another line", "after an empty line", "one column"],
)
def test_text_below_words_with_spaces_between_them_is_no_table(text):
    assert values(text) == []


def test_a_word_beside_a_url_and_a_user_is_a_password():
    assert values("name,url,username,password\ngit,https://git.corp,crm,correcthorse\n") == ["correcthorse"]
    assert values("name,password\ncrm,correcthorse\n") == []


@pytest.mark.parametrize(
    "text",
    [
        f"def login(user, password, host):\n    return user, password, {PASSWORD!r}\n",
        f"        user, password, host,\n        one, two, three,\n# {PASSWORD}\n",
        f"words = [\n    'password',\n    '{PASSWORD}',\n]\n",  # the lines of a list
        f"WORDS = (\n    'one', 'token', 'two',\n    'three', '{PASSWORD}w7Rt4Zp1', 'four',\n)\n",
        "Enter your name, password, and address\nthen press, wait, and go on\n",
        f'  "key", "secret", and an optional "token" key\n  goes on here.\n  (int, {PASSWORD}, {PASSWORD}\n',
        "| User | Password | Expected |\n|---|---|---|\n| crm | wrong-password | refused |\n",
        f"| User | Password |\n\n| crm | {PASSWORD} |\n",  # no rule below the header
        f"name,password\n\n{PASSWORD},{PASSWORD}\n",  # an empty line ends the table
        f"id,name,password\n{PASSWORD},2\n",  # fewer cells than columns
        "id,name,password\n1,crm,5f4dcc3b5aa765d61d8327deb882cf99\n",
        "INSERT INTO users (login, password) VALUES ('crm', '5baa61e4c9b93f3f0682250b6cf8331b7ee68fd8')",
        f"INSERT INTO users (login, password) VALUES ('crm', MD5('{PASSWORD}'))",
        (
            "INSERT INTO users (login, password) VALUES (?, ?), (%s, %s), ('$login', '$password'), "
            "('\" + a + \"', '\" + b + \"')"
        ),
        f"INSERT INTO posts (title, body) VALUES ('crm', '{PASSWORD}')",
        f"INSERT INTO users (login, password) SELECT '{PASSWORD}', '{PASSWORD}'",
    ],
)
def test_other_lists_and_tables_have_no_findings(text):
    assert values(text) == []


@pytest.mark.parametrize(
    "part",
    [
        "a,password,b\n",
        "a,password,b\n\n",
        "| a | password |\n|---|---|\n",
        '"a,',
        "insert into t (a, password",
        "\t" * 900 + "password\t\n",
    ],
)
def test_headers_on_every_line_take_linear_time(part):
    """Each table is read once, though each of its lines may look like the header of another."""
    assert grows_linearly(lambda size: hits("a,password,b\n" + part * (size // len(part))), 10_000)


@pytest.mark.parametrize("part", [b"secret,", b"password;", b"token\t", b"secret)", b"(secret "])
def test_matches_in_one_long_line_search_a_bounded_part_of_it(part):
    """Twice the text takes twice the search: a header is short, so no match searches the whole line."""

    def searched(size: int) -> int:
        text = CountingBytes(part * size)
        ends = range(len(part), len(text) + 1, len(part))
        assert list(find_in_tables(text, ends, lambda _start, _end: False, include_low=True)) == []
        return text.searched

    assert searched(4_000) < 2.5 * searched(2_000)


def test_a_header_of_a_thousand_bytes_is_read_and_a_longer_one_is_not():
    columns = "".join(f",{'c' * 24}" for _ in range(36))
    for padding, expected in ((90, [PASSWORD]), (93, [])):
        header = f"{'a' * (padding % 40)},{'b' * (padding - padding % 40 - 41)},{'b' * 39}{columns},password"
        row = f"{',' * header.count(',')}{PASSWORD}"
        text = f"x\n{header}\n{row}\n".encode()
        cells, _ = read_table(text, len(header) + 3)
        assert (len(header) <= 1_000) == bool(expected)
        assert [text[cell.start : cell.end].decode() for cell in cells] == expected


def test_a_table_ends_at_an_empty_line():
    text = b"a,password\n1,2\n\nmore"
    assert read_table(text, text.index(b"\n") + 1)[1] == text.index(b"\n\n")
