"""A line for a shell, read as the programs in it would read it: an option that is not there is an error."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import click
from django.core.management import get_commands, load_command_class
from flask.cli import run_command

from bench.__main__ import parse as of_bench
from demo_shop.configuration import KINDS
from demo_shop.museum.exhibits import EXHIBITS
from distlock.cli.main import distlock
from django_distlock.management.operating import distlock as of_django
from flask_distlock.commands import commands as of_flask
from loadtest.open_shop import invitation
from loadtest.options import parse
from loadtest.scenario import BUY, VISITS, BuyerCrowd, story
from tests.docs.blocks import DOCS, ROOT, Block
from tests.histories.__main__ import options as options_of_histories

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
#: What a shell does by itself, and programs of every system.
OF_THE_SYSTEM = {".", "cd", "sh", "sleep", "wait", "/srv/shop/import.sh", "/srv/shop/report.sh"}


def commands(line: str) -> Iterator[list[str]]:
    """The words of each command in *line*, without redirections and the words of the shell itself."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    words = iter([*lexer, ";"])
    for word in words:
        if word in {"&&", "&", ";", "|"}:
            if command:
                yield command
            command = []
        elif word == ">":
            next(words)
        elif not command and word == "for":
            # The loop's variable and its values run nothing.
            for word in words:
                if word == ";":
                    break
        elif command or word not in {"while", "do", "done"}:
            command.append(word)


def read(block: Block, line: str) -> None:
    """Raises where a program would refuse the line."""
    for words in commands(line):
        while set_ := re.fullmatch(r"([A-Za-z_]+)=.*", words[0]):
            of_the_shop = set_[1].removeprefix("SHOP_").lower() in KINDS
            assert of_the_shop or f"${set_[1]}" in block.text, set_[1]
            words = words[1:] or ["sleep"]
        program, *arguments = words
        program = program.removeprefix(".venv/bin/").removeprefix("/srv/shop/.venv/bin/")
        if program in {"python", "python3"}:
            python(block, arguments)
        elif program not in OF_THE_SYSTEM:
            PROGRAMS[program](arguments)


def python(block: Block, arguments: list[str]) -> None:
    page = (DOCS / block.page).read_text("utf-8") if block.page != "README.md" else ""
    match arguments:
        case ["manage.py", command, *_] if f"# shop/management/commands/{command}.py" in page:
            pass  # The page writes it.
        case ["manage.py", *rest]:
            manage(rest)
        case ["-m", "venv", folder]:
            assert folder == ".venv"
        case ["-m", "distlock", *rest]:
            by_click(distlock, rest)
        case ["-m", "loadtest", *rest]:
            parse(rest)
        case ["-m", "loadtest.museum", *rest]:
            assert set(rest) <= set(EXHIBITS), block
        case ["-m", module]:
            assert module.startswith("bench."), block
            assert importlib.util.find_spec(module), module
        case ["-c", code]:
            compile(code, str(block), "exec")
        case [script, *_]:
            assert f"# {script}\n" in page, f"{block}: {script}"


def by_click(group: click.Group, arguments: list[str]) -> None:
    if arguments:
        name, *rest = arguments
        group.commands[name].make_context(name, rest, parent=click.Context(group))


def manage(arguments: list[str]) -> None:
    name, *rest = arguments
    if name == "distlock":
        by_click(of_django, rest)
    else:
        app = get_commands()[name]
        command = load_command_class(app, name) if isinstance(app, str) else app
        command.create_parser("manage.py", name).parse_args(rest)


def flask(arguments: list[str]) -> None:
    match arguments:
        case ["--app", "shop", *rest]:
            flask(rest)
        case ["run", *rest]:
            run_command.make_context("run", rest)
        case ["shell"]:
            pass
        case ["distlock", *rest]:
            by_click(of_flask, rest)
        case _:
            assert arguments == ["db", "migrate"], arguments  # Flask-Migrate's.


def pip(arguments: list[str]) -> None:
    """Each extra is one of pyproject.toml's, and each package one that the tests are run with."""
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    known = {name_of(one) for group in groups.values() for one in group if isinstance(one, str)}
    word, *rest = arguments
    assert word == "install"
    while rest:
        one = rest.pop(0)
        if one == "--group":
            assert rest.pop(0) in groups
        elif ours := re.fullmatch(r"(?:/path/to/the/clone|\.)\[([\w,]+)\]", one):
            assert set(ours[1].split(",")) <= extras.keys(), one
        elif one != "-e":
            assert name_of(one) in known, one


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement)[0].lower()


def script(name: str) -> Callable[[list[str]], None]:
    """Those that hand their arguments on: the first is an option that the script has, or a path."""

    def read_by(arguments: list[str]) -> None:
        text = (ROOT / "scripts" / name).read_text("utf-8")
        assert not arguments or arguments[0] in text or (ROOT / arguments[0]).exists(), arguments

    return read_by


def locust(arguments: list[str]) -> None:
    """As ``scripts/demo up`` prints it, with the numbers that it has there."""
    crowd, scenario = BuyerCrowd(), story("django")[0]
    told = invitation(scenario, VISITS[BUY], ["one"], "http://127.0.0.1:8000", crowd)
    printed = re.search(r"locust (-f .*?)\n +Then", told, re.DOTALL)
    assert printed
    assert arguments == shlex.split(printed[1].replace("\\\n", " "))


def install(arguments: list[str]) -> None:
    """``sudo install``: the options are those of the program, and nothing is made."""
    help_ = tool("install", "--help")
    assert all(option in help_ for option in arguments if option.startswith("-"))


@cache
def tool(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


PROGRAMS: dict[str, Callable[[list[str]], object]] = {
    "manage.py": manage,
    "django-admin": manage,
    "flask": flask,
    "distlock": lambda arguments: by_click(distlock, arguments),
    "pip": pip,
    "scripts/demo": parse,
    "scripts/test": script("test"),
    "scripts/docs": script("docs"),
    "scripts/bench": of_bench,
    "scripts/histories": lambda arguments: options_of_histories().parse_args(arguments),
    "locust": locust,
    "sudo": lambda arguments: install(arguments[1:]),
    # These are run: the first two in test_blocks.py, curl in tests/readme.
    "redis-server": lambda arguments: None,
    "redis-cli": lambda arguments: None,
    "curl": lambda arguments: None,
}
