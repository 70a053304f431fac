"""The buyers of the bench read whole answers, however these are cut, and count what they say."""

from __future__ import annotations

import pytest

from bench.web.buyers import is_whole

SIZED = b"HTTP/1.1 200 OK\r\nServer: nginx\r\ncontent-length: 4\r\n\r\nsold"
CHUNKED = b"HTTP/1.1 423 Locked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize("answer", [SIZED, CHUNKED])
def test_an_answer_is_whole_when_its_last_byte_is_there(answer: bytes) -> None:
    assert is_whole(answer)
    assert not any(is_whole(answer[:length]) for length in range(len(answer)))
