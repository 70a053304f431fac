from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from demo_shop.configuration import VAR, Configuration
from loadtest import stack
from loadtest.__main__ import main
from loadtest.options import parse
from loadtest.servers.processes import ChildProcess, StackError, sweep, thread_states, waking
from loadtest.stack import ROOT, Stack
from loadtest.stories import told


def test_leaving_the_stack_ends_every_process_and_removes_its_directory() -> None:
    before = psutil.Process().children()
    with Stack(("flask",), Configuration()) as stack:
        # Those of the other tests, the browser for one, may start processes at any time.
        direct = [child for child in psutil.Process().children() if child not in before]
        started = direct + [one for child in direct for one in child.children(recursive=True)]
        assert len(started) >= 3  # gunicorn, its worker, nginx
        directory = stack.directory
    assert psutil.wait_procs(started, timeout=5)[1] == []
    assert not directory.exists()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_an_opened_shop_is_closed_however_the_command_ends(end: signal.Signals) -> None:
    command = [sys.executable, "-m", "loadtest", "up", "--framework", "flask"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as opened:
        assert opened.stdout
        said = ""
        while "sold 0 of 20" not in said:
            line = opened.stdout.readline()
            assert line, said
            said += line
        assert said.startswith("Lock service: redis. Database: sqlite.\n")
        assert "two-unlocked: two instances, no lock" in said
        started = psutil.Process(opened.pid).children(recursive=True)
        assert len(started) >= 3
        opened.send_signal(end)
        assert psutil.wait_procs(started, timeout=10)[1] == []
        said += opened.stdout.read()
    assert "Traceback" not in said
    if end is signal.SIGKILL:  # nobody was left to tidy up; the next start does
        opened.wait()
        assert list(VAR.glob(f"run-{opened.pid}-*"))
        with Stack(("flask",), Configuration()):
            pass
    assert not list(VAR.glob(f"run-{opened.pid}-*"))


def test_a_person_at_a_desktop_finds_the_page_open(tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >>"{opened}"\n')
    browser.chmod(0o755)
    terminal, side = os.openpty()
    command = [sys.executable, "-m", "loadtest", "up", "one-process", "--framework", "flask"]
    desktop = {**os.environ, "DISPLAY": ":0", "BROWSER": str(browser)}
    with subprocess.Popen(command, cwd=ROOT, env=desktop, stdin=side, stdout=side, stderr=side) as shop:
        os.close(side)
        said = ""
        while "sold 0 of 20" not in said:
            said += os.read(terminal, 1000).decode()
        shop.send_signal(signal.SIGINT)
        shop.wait(30)
    os.close(terminal)
    (url,) = opened.read_text().split()
    assert f"The shop:    {url}" in said


@pytest.mark.parametrize(
    ("asked", "opened"),
    [
        ([], "two-unlocked"),
        (["--framework", "mixed"], "mixed-unlocked"),
        (["--async"], "two-unlocked"),
        (["--guard", "conditional"], "two-conditional"),
        (["--story", "transactions"], "commit-plain"),
        (["one-process"], "one-process"),
    ],
)
def test_a_shop_that_nobody_names_is_the_one_that_goes_wrong(asked: list[str], opened: str) -> None:
    options = parse(["up", *asked])
    assert options.scenarios == [opened]
    (scenario,) = (one for one in told(options) if one.slug == opened)
    if opened.endswith("unlocked"):
        assert (len(scenario.instances), scenario.guard) == (2, "none")
        assert scenario.is_async == ("--async" in asked)


def test_only_the_directories_of_dead_runs_are_swept(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    ours, theirs = tmp_path / f"run-{os.getpid()}-a", tmp_path / "run-1-b"
    dead, other = tmp_path / f"run-{ended.pid}-c", tmp_path / "run-of-nobody"
    for directory in (ours, theirs, dead, other):
        (directory / "locks").mkdir(parents=True)
    sweep(tmp_path, "run-")
    assert sorted(tmp_path.iterdir()) == sorted([ours, theirs, other])


def test_a_port_in_use_is_told_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "loadtest", "up", "one-process", "--port", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 3
    said = f"Port {port} is in use: choose another with --port."
    assert done.stderr == f"The load test can't run: {said}\n"


def test_a_port_that_does_not_exist_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "one-process", "--port", "70000"]) == 3
    assert "there is no port 70000" in capsys.readouterr().err


def test_what_stands_still_goes_on_by_itself_when_nobody_is_left_to_wake_it(tmp_path: Path) -> None:
    child = ChildProcess("the sleeper", ["sleep", "60"], tmp_path / "log")
    try:
        child.freeze()
        assert set(thread_states(child.process.pid)) == {"T"}
        subprocess.run(waking(child.process.pid, 0), check=True)
        child.wait_until(lambda: "T" not in thread_states(child.process.pid))
    finally:
        child.thaw()
        child.kill()


def test_a_server_that_does_not_start_is_reported_with_its_own_words(tmp_path: Path) -> None:
    child = ChildProcess("the oven", [sys.executable, "-c", "raise SystemExit('no gas')"], tmp_path / "log")
    try:
        with pytest.raises(StackError, match=r"the oven did not start\. It said: no gas"):
            child.wait_until(lambda: False)
    finally:
        child.stop()


def test_a_frozen_child_stands_still_with_all_its_threads(tmp_path: Path) -> None:
    busy = "import threading; threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start(); print('on')"
    log = tmp_path / "log"
    child = ChildProcess("busy", [sys.executable, "-uc", busy], log)
    try:
        child.wait_until(lambda: "on" in log.read_text())
        child.freeze()
        assert set(thread_states(child.process.pid)) == {"T"}
        child.thaw()
        child.wait_until(lambda: "T" not in thread_states(child.process.pid))
    finally:
        child.stop()


def test_a_missing_nginx_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    # The program is looked for in PATH and in the system's own directories; neither has one here.
    script = (
        "import shutil, sys; shutil.which = lambda *_, **__: None; "
        "from loadtest.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith(
        "The load test can't run: nginx is not installed. Run: apt-get"
    )
    assert "Traceback" not in done.stderr


def test_nginx_replays_no_purchase_and_leaves_no_instance_out(tmp_path: Path) -> None:
    stack.configure_nginx(tmp_path, 8000, [8001, 8002])
    written = (tmp_path / "nginx.conf").read_text()
    assert "proxy_next_upstream off;" in written
    assert written.count("max_fails=0;") == 2
