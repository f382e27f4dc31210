"""Passwords in columns: exports of browsers and password managers, tables of Markdown, rows that SQL inserts."""

import time

import pytest

from outcrop.scanner.generic.tables import read_table
from tests.support.rulesets import BASE62, drawn, hits, values

DRAWN = "kX8#mQ2wL9"

TABLES = {
    "Chrome": f'name,url,username,password,note\ngit,https://git.corp,crm,{DRAWN},\nmail,https://mail.corp,crm,sunnyharbour,"a, b"\n',
    "Firefox": f'"url","username","password","httpRealm","guid"\n"https://git.corp","crm","{DRAWN}",,"{{1b2c}}"\n',
    "Bitwarden": f"folder,favorite,type,name,notes,fields,reprompt,login_uri,login_username,login_password,login_totp\n"
    f",,login,Git,,,0,https://git.corp,crm,{DRAWN},\n",
    "KeePass": f'"Group","Title","Username","Password","URL","Notes"\n"Root","x","crm","{DRAWN}","https://git.corp",""\n',
    "lines that end as on Windows": f"url,username,password\r\nhttps://git.corp,crm,{DRAWN}\r\n",
    "a mark of the encoding before it": f"\ufeffpassword,url\n{DRAWN},https://git.corp\n",
    "no line break at its end": f"url,username,password\nhttps://git.corp,crm,{DRAWN}",
    "tabs": f"host\tuser\tpassword\ndb.corp\tcrm\t{DRAWN}\n",
    "semicolons": f"Benutzer;Passwort;Rolle\ncrm;{DRAWN};admin\n",
    "Markdown": f"# Logins\n\n| Host | User | Password |\n|------|:----:|---------:|\n| db | crm | `{DRAWN}` |\n\nthe end",
    "Markdown, bold": f"| **User** | **Password** |\n|---|---|\n| crm | **{DRAWN}** |\n",
    "Markdown without bars around it": f"User | Password\n--- | ---\ncrm | {DRAWN}\n",
    "SQL": f"INSERT INTO users (id, login, password) VALUES (1, 'crm', '{DRAWN}');",
    "SQL in lines": f"insert into `users` (`id`,`login`,`passwd`,`at`)\nVALUES\n  (1,'ops',NULL,NOW()),\n  (2,'crm','{DRAWN}',NOW());",
    "SQL of Microsoft": f"INSERT INTO [dbo].[Users] ([Name],[Password]) VALUES (N'crm', N'{DRAWN}')",
    "SQL in code": f"cursor.execute(\"INSERT INTO users (login, password) VALUES ('crm', '{DRAWN}')\")",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
def test_what_stands_in_a_column_for_passwords_is_found_in_its_place(text):
    found = [hit for hit in hits(text.encode()) if text.encode()[hit.start : hit.end] == DRAWN.encode()]
    assert len(found) == 1
    before = text[: text.index(DRAWN)]
    assert (found[0].line, found[0].column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


def test_a_cell_may_have_line_breaks():
    assert values(f'name,password,note\na,{DRAWN},"one\ntwo, three\nfour"\nb,{DRAWN}9,x\n') == [
        DRAWN,
        f"{DRAWN}9",
    ]


def test_a_column_for_tokens_holds_what_is_more_than_a_word():
    drawn_one = drawn(BASE62, 32)
    assert values(
        f"| Service | API Key |\n|---|---|\n| maps | {drawn_one} |\n| mail | see-the-vault |\n"
    ) == [drawn_one]
    assert values(f"service,token\nmaps,{drawn_one}\nmail,sunnyharbour\n") == [drawn_one]


def test_beside_an_address_and_a_user_a_word_is_one_too():
    assert values("name,url,username,password\ngit,https://git.corp,crm,correcthorse\n") == ["correcthorse"]
    assert values("name,password\ncrm,correcthorse\n") == []


@pytest.mark.parametrize(
    "text",
    [
        f"def login(user, password, host):\n    return user, password, {DRAWN!r}\n",
        f"        user, password, host,\n        one, two, three,\n# {DRAWN}\n",
        f"words = [\n    'password',\n    '{DRAWN}',\n]\n",  # lines of a list
        f"WORDS = (\n    'one', 'token', 'two',\n    'three', '{DRAWN}w7Rt4Zp1', 'four',\n)\n",
        "Enter your name, password, and address\nthen press, wait, and go on\n",
        f'  "key", "secret", and an optional "token" key\n  goes on here.\n  (int, {DRAWN}, {DRAWN}\n',
        "| User | Password | Expected |\n|---|---|---|\n| crm | wrong-password | refused |\n",
        f"| User | Password |\n\n| crm | {DRAWN} |\n",  # without a rule it is no table
        f"name,password\n\n{DRAWN},{DRAWN}\n",  # an empty line ends it
        f"id,name,password\n{DRAWN},2\n",  # a row of something else
        "id,name,password\n1,crm,5f4dcc3b5aa765d61d8327deb882cf99\n",
        "INSERT INTO users (login, password) VALUES ('crm', '5baa61e4c9b93f3f0682250b6cf8331b7ee68fd8')",
        f"INSERT INTO users (login, password) VALUES ('crm', MD5('{DRAWN}'))",
        "INSERT INTO users (login, password) VALUES (?, ?), (%s, %s), ('$login', '$password'), ('\" + a + \"', '\" + b + \"')",
        f"INSERT INTO posts (title, body) VALUES ('crm', '{DRAWN}')",
        f"INSERT INTO users (login, password) SELECT '{DRAWN}', '{DRAWN}'",
    ],
)
def test_what_is_no_such_column_or_holds_none(text):
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
def test_headings_on_every_line_take_linear_time(part):
    """Each table is read once, though each of its lines may look like the heading of another."""
    took = []
    for count in (1, 4):
        text = ("a,password,b\n" + part * (count * 20_000 // len(part))).encode()
        begin = time.process_time()
        hits(text)
        took.append(time.process_time() - begin)
    assert took[1] < 12 * max(took[0], 0.01)


def test_a_table_ends_where_it_does():
    text = b"a,password\n1,2\n\nmore"
    assert read_table(text, text.index(b"\n") + 1)[1] == text.index(b"\n\n")
