"""``distlock prepare``: what a lock service needs is made once."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.cli.conftest import command
from tests.databases import Databases


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("postgresql", "The table distlock_name and the sequence distlock_number are there"),
        ("mariadb", "The table distlock_name is there"),
    ],
)
def test_what_a_database_needs_is_made_by_the_command_that_the_error_names(
    databases: Databases, kind: str, what: str
) -> None:
    environment = {"DISTLOCK_URL": databases(kind, "prepared")}
    lock = ["run", "import", "--", "true"]
    refused = CliRunner().invoke(command, lock, env=environment)
    assert refused.exit_code == 2
    assert "Run 'distlock prepare'" in refused.output
    for _ in range(2):
        made = CliRunner().invoke(command, ["prepare"], env=environment)
        assert made.output.startswith(what)
    assert CliRunner().invoke(command, lock, env=environment).exit_code == 0


def test_where_nothing_is_needed_it_says_so() -> None:
    made = CliRunner().invoke(command, ["prepare", "--url", "memory://prepared"])
    assert made.output == "Nothing has to be made: locks can be taken.\n"
