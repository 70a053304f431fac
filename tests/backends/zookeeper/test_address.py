from __future__ import annotations

import pytest

import distlock
from distlock.errors import ConfigurationError
from tests.backend_class import new_backend


def shown(url: str) -> str:
    """Return the place that the backend of *url* names in its `repr`."""
    made = repr(new_backend(url))
    return made.removeprefix("<ZooKeeperBackend ").removesuffix(">")


@pytest.mark.parametrize(
    ("url", "hosts", "chroot"),
    [
        ("zookeeper://zk1", "zk1:2181", ""),
        ("zookeeper://zk1/", "zk1:2181", ""),
        (
            "zookeeper://zk1:2182,zk-2.example,[::1]:2183/shop",
            "zk1:2182,zk-2.example:2181,[::1]:2183",
            "/shop",
        ),
        ("zookeeper://127.0.0.1/a/b%20c/", "127.0.0.1:2181", "/a/b c"),
    ],
)
def test_hosts_and_path(url: str, hosts: str, chroot: str) -> None:
    assert shown(url) == hosts + chroot


def test_neither_a_login_nor_the_words_of_tls_are_shown() -> None:
    assert shown("zookeeper://shop:p%40ss@zk1/shop") == "zk1:2181/shop"
    assert shown("ZooKeepers://zk1:2281/shop?ssl_password=s3cr3t&ssl_certfile=/a%20b.pem") == "zk1:2281/shop"


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://",
        "zookeeper://,zk1",
        "zookeeper://zk1:0",
        "zookeeper://zk1:99999",
        "zookeeper://s3cr3t word@",
        "zookeeper://user@zk1",
        "zookeeper://zk1/a/../b",
        "zookeeper://zk1/a//b",
        "zookeeper://zk1/%00",
        "zookeeper://zk1/zookeeper/config",
        "zookeeper://zk1/shop?timeout=3",
        "zookeepers://zk1/shop?timeout=3",
        "zookeeper://zk1/shop?ssl_ca_certs=/ca.pem",
        "zookeepers://zk1/shop?ssl_cert_reqs=s3cr3t",
        "zookeepers://zk1/shop?ssl_password=s3cr3t&ssl_password=s3cr3t",
        "zookeeper://zk1/shop#part",
        "zookeeper://shop:12/s3cr3t@zk1/shop",
        "zookeeper://shop:12?s3cr3t@zk1/shop",
        "zookeeper://shop:12#s3cr3t@zk1/shop",
        "zookeeper://shop:s3cr3t@[::1/shop",
    ],
)
def test_what_cannot_be_read_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        distlock.connect(url)
    assert "s3cr3t" not in str(caught.value)
