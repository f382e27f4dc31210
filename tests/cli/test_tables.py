"""Tables of the command line, where stdout is no terminal."""

import io

from outcrop.cli.tables import print_table


def test_columns_are_aligned_and_nothing_is_cut_or_wrapped() -> None:
    file = io.StringIO()
    print_table(("id", "name", "note"), [["1", "äö漢字", "x" * 500], ["12345", "b", "two\nlines"]], file=file)
    assert file.getvalue().splitlines() == [
        "id     name    note",
        f"1      äö漢字  {'x' * 500}",
        "12345  b       two",
        "               lines",
    ]


def test_a_table_without_rows_has_its_heads() -> None:
    file = io.StringIO()
    print_table(("id", "name"), [], file=file)
    assert file.getvalue() == "id  name\n"
