from __future__ import annotations

import pytest

import distlock
from distlock.errors import ConfigurationError

HOSTS = "a:7000,[::1]:7001,c"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+cluster://a,b/3", "no database but 0: leave it out"),
        ("redis+cluster://a,b?db=3", "no database but 0: leave db= out"),
        ("redis+cluster://a,,b", "a comma too many"),
        ("redis+cluster://a,b,", "a comma too many"),
        ("redis+cluster://a:0,b", r"Write redis://"),
        ("redis+cluster://a,b:x", r"Write redis://"),
        ("redis+cluster://a,b?sentinel=1", "unknown parameter: 'sentinel'"),
        ("redis+cluster://a?ssl_ca_certs=/x", "ssl_ca_certs is for TLS"),
    ],
)
def test_what_can_not_be_meant_is_refused_when_it_is_configured(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refused:
        distlock.connect(url.replace("//", "//shop:s3cret@"))
    assert "s3cret" not in str(refused.value)


def test_another_scheme_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Write redis\+cluster://"):
        distlock.connect("redis://a", backend="redis+cluster")


@pytest.mark.parametrize("password", ["s3cret/x", "s3cret?x", "s3cret#x", "x/s3cret", "x?s3cret", "x#s3cret"])
@pytest.mark.parametrize("user", ["shop:", ":", ""])
def test_a_password_that_is_not_encoded_is_not_shown(user: str, password: str) -> None:
    with pytest.raises(ConfigurationError, match="write %40 for @") as refused:
        distlock.connect(f"redis+cluster://{user}{password}@{HOSTS}")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("end", ["/\n", "/0\n", "/0#", "\r\n"])
def test_the_end_of_a_line_in_a_file_of_settings_is_ignored(end: str) -> None:
    distlock.connect(f"redis+cluster://{HOSTS}{end}")
