"""The line that an error is about is looked for on the stack, outside of what is ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from distlock.web.guard_marks import this_code


def test_it_is_the_innermost_line_that_is_not_ours() -> None:
    line = test_it_is_the_innermost_line_that_is_not_ours.__code__.co_firstlineno + 2
    assert this_code() == f"{__file__}, line {line}: this code"


def test_a_thread_that_has_none_has_no_line() -> None:
    # Nothing of this file is on its stack: the standard library calls.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(this_code).result(30) == "This code"
