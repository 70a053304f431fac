"""A reader who types what the README says into a new project, in an environment where nothing of ours is."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.web.quickstart import code_blocks

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
#: The pages that the README links to for the rest.
DJANGO_PAGE, FLASK_PAGE = (ROOT / "docs" / "start" / f"{name}.md" for name in ("django", "flask"))
DJANGO_LINES, FLASK_LINES = code_blocks(README, "python")
SETTING, DJANGO_VIEW, DJANGO_URLS = re.split(r"\n+(?=# \S+\.py\n)", DJANGO_LINES)
FLASK_APP, CREATE_ALL, *_ = code_blocks(FLASK_PAGE.read_text("utf-8"), "python")
#: What the README takes as given: a project with products.
DJANGO_MODELS = """
from django.db import models


class Product(models.Model):
    stock = models.IntegerField()
"""
#: What is typed when the lines stand there, in one process: each would load Django again.
READY = """
from django.core.management import call_command
from shop.models import Product

call_command("migrate", verbosity=0)
call_command("check", fail_level="WARNING")
Product.objects.create(stock={stock})
"""
#: A page that has the form.
FORM_PAGE = """
from django.views.generic import TemplateView

urlpatterns += [path("", TemplateView.as_view(template_name="buy.html"))]
"""
(FORM,) = re.findall("`(<form.*?</form>)`", DJANGO_PAGE.read_text("utf-8"))
(FLASK_NEEDS,) = re.findall("`pip install (flask-[^`]*)`", FLASK_PAGE.read_text("utf-8"))
OWN = ["gunicorn", FLASK_NEEDS]


#: The commands that buy, in a shell.
(DJANGO_CURL,) = (block for block in code_blocks(README, "sh") if "curl" in block)
(FLASK_CURL,) = (block for block in code_blocks(FLASK_PAGE.read_text("utf-8"), "sh") if "curl" in block)


def typed(lines: str) -> dict[str, str]:
    """The headers that curl sends when *lines* are typed into a shell."""
    shown = f"curl() {{ printf '%s\\n' \"$@\" >&2; }}\n{lines}"
    done = subprocess.run(["sh", "-euc", shown], capture_output=True, text=True, check=True)
    words = iter(done.stderr.splitlines())
    method, headers = "GET", dict[str, str]()
    for word in words:
        if word == "-X":
            method = next(words)
        elif word in {"-so", "-w"}:
            assert next(words) in {"/dev/null", r"%{http_code}\n"}
        elif word == "-b":
            headers["Cookie"] = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        else:
            assert re.fullmatch(r"http://localhost:(8000|8001|5000)/products/1/reduce", word), word
    assert method == "POST"
    return headers


@dataclass(frozen=True, slots=True)
class Shop:
    """A project that is ready to be served."""

    folder: Path
    application: str
    database: Path
    table: str
    headers: Mapping[str, str]

    def left(self) -> int:
        with sqlite3.connect(self.database) as connection:
            ((left,),) = connection.execute(f"SELECT stock FROM {self.table}")
        connection.close()
        return int(left)


@dataclass(frozen=True, slots=True)
class Reader:
    """A virtual environment with what the README says to install."""

    environment: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def project(self) -> Path:
        """What `django` starts from: nothing of ours is in it."""
        return self.environment / "project"

    def run(
        self, *command: object, cwd: Path | None = None, python: Path | str = "", lines: str = ""
    ) -> None:
        """Run *command*, and type *lines* into it."""
        # Nothing of this clone, or of pytest-django's, is in reach.
        own = {
            name: value
            for name, value in os.environ.items()
            if name not in ("DJANGO_SETTINGS_MODULE", "PYTHONPATH", "VIRTUAL_ENV")
        }
        # The newest versions of others are somebody else's test.
        own["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")
        done = subprocess.run(
            [python or self.python, *map(str, command)],
            cwd=cwd or self.environment,
            env=own,
            input=lines,
            capture_output=True,
            text=True,
            timeout=600,
        )
        # A shell goes on after an error.
        is_well = done.returncode == 0 and not (lines and "Traceback" in done.stderr)
        assert is_well, f"{command}\n{done.stdout}{done.stderr}"

    def install(self, clone: Path, *extras: str) -> None:
        """Type the line that begins with ``pip install``; *extras* are added to the one that it has."""
        (line,) = re.findall(r"^pip install '/path/to/the/clone\[([^]]*)\]'", README, re.MULTILINE)
        venv.create(self.environment)
        wanted = f"{clone}[{','.join([line, *extras])}]"
        # By the pip that is there. What nobody imports is not compiled.
        pip = ["-m", "pip", "--python", self.python, "install", "--quiet", "--no-compile"]
        self.run(*pip, "--disable-pip-version-check", wanted, *OWN, python=sys.executable)
        self.start_project()

    def start_project(self) -> None:
        """By ``django-admin startproject``, with an app ``shop`` that has products."""
        self.project.mkdir()
        self.run("-m", "django", "startproject", "mysite", ".", cwd=self.project)
        self.run("manage.py", "startapp", "shop", cwd=self.project)
        with (self.project / "mysite" / "settings.py").open("a") as settings:
            settings.write('\nINSTALLED_APPS += ["shop"]\n')
        (self.project / "shop" / "models.py").write_text(DJANGO_MODELS)
        self.run("manage.py", "makemigrations", "shop", cwd=self.project)

    def django(self, folder: Path, setting: str, stock: int, view: str = DJANGO_VIEW) -> Shop:
        """The project with the README's lines in it."""
        shutil.copytree(self.project, folder)
        with (folder / "mysite" / "settings.py").open("a") as settings:
            settings.write(setting)
        (folder / "shop" / "views.py").write_text(view)
        with (folder / "mysite" / "urls.py").open("a") as urls:
            urls.write(f"\n{DJANGO_URLS}{FORM_PAGE}")
        (folder / "shop" / "templates").mkdir()
        (folder / "shop" / "templates" / "buy.html").write_text(FORM)
        self.run("manage.py", "shell", "-c", READY.format(stock=stock), cwd=folder)
        return Shop(folder, "mysite.wsgi", folder / "db.sqlite3", "shop_product", typed(DJANGO_CURL))

    def flask(self, folder: Path, lines: str, stock: int) -> Shop:
        """Make the app of the page that the README links to, with its table and a product."""
        folder.mkdir()
        (folder / "app.py").write_text(lines)
        self.run("-m", "flask", "shell", cwd=folder, lines=CREATE_ALL.replace("stock=5", f"stock={stock}"))
        return Shop(folder, "app:app", folder / "instance" / "shop.db", "product", typed(FLASK_CURL))


def tracked() -> Iterator[str]:
    """The files that a reader has cloned: no build, nor what a build leaves behind."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return (file for file in done.stdout.splitlines() if (ROOT / file).is_file())


def copy_of_the_clone(folder: Path) -> Path:
    for file in tracked():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)
    return folder


def digest() -> str:
    """Another one for each state of the clone."""
    state = hashlib.sha256(sys.version.encode())
    for file in tracked():
        state.update(file.encode() + b"\0" + (ROOT / file).read_bytes())
    return state.hexdigest()
