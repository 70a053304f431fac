"""Every block of the pages is run, read by the program that it is for, or held to real output by a test.

Python is checked by mypy in test_types.py, and run by the tests of its page.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tomllib
import zipfile
from collections.abc import Callable

import click
import pytest
from sqlalchemy import create_engine, text

import distlock
from demo_shop.ledger import database_url
from distlock import metrics
from loadtest.servers.processes import free_port
from tests.databases import Databases
from tests.docs.blocks import ROOT, Block, blocks, commands_in_sentences
from tests.docs.typed import read
from tests.redis_server import eventually, running
from tests.web.quickstart import listens
from tests.zookeeper_server import JARS

BLOCKS = list(blocks())
#: Sphinx reads these, and warns.
OF_SPHINX = re.compile(r"\{(toctree|eval-rst|include)\}")
#: What is typed, and what is written then; and output alone. By page: the test that holds it to real output.
#: And Java: the module that compiles it for the tests.
HELD_BY = {
    "start/script.md": "tests/docs/test_script.py",
    "from/java.md": "tests/backends/zookeeper/curator.py",
    "explanation/admission.md": "tests/engine/test_admission.py",
    "explanation/read-under-the-lock.md": "tests/django_distlock/fresh/test_stale_writes.py",
    "tutorial/django.md": "tests/docs/shop_folder.py",
    "tutorial/flask.md": "tests/docs/shop_folder.py",
    "how-to/stuck.md": "tests/cli/test_page.py",
    "how-to/testing.md": "tests/testing/test_page.py",
    "reference/commands.md": "tests/cli/test_page.py",
    "reference/backends/redis.md": "tests/backends/redis/test_permissions.py",
    "reference/backends/sentinel.md": "tests/topologies/sentinel/test_page.py",
    "reference/backends/zookeeper.md": "tests/topologies/zookeeper/tls.py",
}
#: Drawings: nothing writes them.
DRAWN = {"explanation/how.md": 1}
#: A line of a crontab: five fields, and a command.
CRONTAB = re.compile(r"(?:# crontab.*\n)?(?:[\d*/,-]+ +){5}(.*)\n")


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def checked(block: Block) -> bool:
    """Whether a test below, or beside, knows what to do with it."""
    if block.language in {"python", "sh", "toml", "json", "sql"} or OF_SPHINX.match(block.language):
        return True
    if block.language == "text" and CRONTAB.fullmatch(block.text):
        return True
    return block.page in HELD_BY or block.page in DRAWN or block in {*CONSOLE, *CONFIGURATION}


CONSOLE = [block for block in of("console") if block.page not in HELD_BY]
SELLING = [block for block in of("sql") if "product" in block.text]
CONFIGURATION = [block for block in of("text") if re.match(r"maxmemory-policy |tickTime=", block.text)]


def test_no_block_is_left_out() -> None:
    assert [str(block) for block in BLOCKS if not checked(block)] == []
    drawn = [block.page for block in of("text") if block.page in DRAWN]
    assert {page: drawn.count(page) for page in DRAWN} == DRAWN
    assert not checked(Block("start/new.md", 1, "text", "sold\n"))
    assert not checked(Block("start/new.md", 1, "", "pip install\n"))


@pytest.mark.parametrize("page", HELD_BY)
def test_output_is_held_by_a_test_that_reads_the_page(page: str) -> None:
    test = (ROOT / HELD_BY[page]).read_text("utf-8")
    assert page.rpartition("/")[2] in test
    assert any(block.page == page and block.language in {"text", "console", "java"} for block in BLOCKS)


@pytest.mark.parametrize("block", of("sh"), ids=str)
def test_a_shell_can_run_it_and_each_program_takes_its_options(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, timeout=60)
    for line in block.text.replace("\\\n", " ").splitlines():
        read(block, re.sub(r"(^| )# .*", "", line))


@pytest.mark.parametrize("block", [one for one in of("text") if CRONTAB.fullmatch(one.text)], ids=str)
def test_a_crontab_runs_what_a_shell_can_run(block: Block) -> None:
    found = CRONTAB.fullmatch(block.text)
    assert found
    read(block, found[1].replace("\\%", "%").replace("$(date +%Y%m%d)", "7"))


def test_commands_in_sentences_can_be_run() -> None:
    found = list(commands_in_sentences())
    assert len(found) > 40
    for command in found:
        with contextlib.suppress(click.MissingParameter):
            # A sentence may leave out what is locked.
            read(command, command.text)


@pytest.mark.parametrize(
    "line",
    [
        "distlock list --newest",
        "distlock unlock product_1",
        "manage.py distlock prune --older 30",
        "manage.py migrate --from scratch",
        "flask --app shop distlock make-table",
        "pip install '/path/to/the/clone[djngo]'",
        "pip install left-pad",
        "scripts/demo --backend etcd",
        "scripts/test --flours",
        "python -m bench.locks",
        "sudo install --directories /var/lib/shop/locks",
        "etcdctl lock product_1",
    ],
)
def test_a_command_that_is_not_there_is_found(line: str) -> None:
    with pytest.raises((Exception, SystemExit)):
        read(Block("start/new.md", 1, "sh", line), line)


PARSERS: dict[str, Callable[[str], object]] = {"toml": tomllib.loads, "json": json.loads}


@pytest.mark.parametrize("block", [*of("toml"), *of("json")], ids=str)
def test_data_is_well_formed(block: Block) -> None:
    assert PARSERS[block.language](block.text)


def test_the_statements_of_the_pages_sell_one_piece(databases: Databases) -> None:
    """On PostgreSQL, with the columns that the pages speak of."""
    engine = create_engine(database_url(databases("postgresql", "pages")))
    fences = {"epoch": 1, "number": 7}
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE product (id int, stock int, fence_epoch int, fence bigint)"))
        for block in SELLING:
            connection.execute(text("DELETE FROM product"))
            connection.execute(text("INSERT INTO product VALUES (1, 3, 1, 5)"))
            sold = [connection.execute(text(block.text), fences).rowcount for _ in range(4)]
            (left,) = connection.execute(text("SELECT stock FROM product")).scalars()
            assert sold[0] == 1, block
            assert sold[-1] == 0, block
            assert left >= 0, block
    engine.dispose()
    assert len(SELLING) >= 2


@pytest.mark.parametrize(("kind", "page"), [("postgresql", "postgresql.md"), ("mariadb", "mysql.md")])
def test_the_statements_for_a_lock_service_run_where_its_table_is(
    databases: Databases, kind: str, page: str
) -> None:
    url = databases(kind, "locks")
    with contextlib.closing(distlock.connect(url, prefix="shop")) as locks:
        assert "distlock_name" in locks.namespace.prepare()
        locks.lock("product_1").acquire()
        engine = create_engine(database_url(url))
        with engine.begin() as connection:
            told = [connection.execute(text(block.text)) for block in of("sql") if block.page.endswith(page)]
            assert [row.name for row in told[-1]] == ["shop:product_1"]
        engine.dispose()
    assert len(told) == 2


def test_the_lines_for_the_lock_services_are_known_to_them() -> None:
    redis, zookeeper = CONFIGURATION
    settings = dict(line.split() for line in redis.text.splitlines())
    for server in running(*(word for name, value in settings.items() for word in (f"--{name}", value))):
        assert {name: server.client.config_get(name)[name] for name in settings} == settings
    with zipfile.ZipFile(JARS[0]) as jar:
        known = jar.read("org/apache/zookeeper/server/quorum/QuorumPeerConfig.class")
    for line in zookeeper.text.splitlines():
        name, _, value = line.partition("=")
        # A word of a class file begins with its length.
        assert len(name).to_bytes(2) + name.encode() in known
        assert int(value) > 0


def test_what_is_typed_in_a_console_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """The page says that it prints where the files are, which differs."""
    (block,) = CONSOLE
    code = re.fullmatch(r"\$ python -c \"(.*)\"\n", block.text)
    assert code
    exec(code[1], {})
    assert capsys.readouterr().out.split() == list(metrics.__path__)


def test_the_redis_of_the_tutorials_runs_and_forgets() -> None:
    """By the same two lines in both."""
    start, forget = dict.fromkeys(one.text for one in of("sh") if re.search("redis-(server|cli) ", one.text))
    port = str(free_port())
    server = subprocess.Popen(["sh", "-c", f"exec {start.replace('6390', port)}"], stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: listens(int(port)), "redis-server listens")
        once = (
            forget.replace("while sleep 0.02; do", "").replace("; done >/dev/null", "").replace("6390", port)
        )
        assert subprocess.check_output(["sh", "-c", once], text=True, timeout=60) == "OK\n"
    finally:
        server.kill()
        server.wait(60)
