"""Processor time is that of the processes asked for, and of their children that have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from bench.services import cpu_of_processes, process_stat, process_stats

BURN = "import time\nwhile time.process_time() < 0.2: pass"


def mine() -> float:
    return cpu_of_processes([process_stat(os.getpid())])


def test_what_a_process_and_its_children_compute_is_counted() -> None:
    before, began = mine(), time.process_time()
    while time.process_time() < began + 0.2:
        pass
    assert (alone := mine()) >= before + 0.15
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert mine() >= alone + 0.15


def test_all_processes_are_seen() -> None:
    assert process_stat(os.getpid())[1] in {stat[1] for stat in process_stats()}
