"""Names that clients make up: two locks are never one, and nobody is blocked."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock
from tests.hostile.site import FACES, JSON, Site
from tests.redis_server import redis_server
from tests.web.both import Sent
from tests.zookeeper_server import zookeeper_server

__all__ = ["redis_server", "zookeeper_server"]

#: What looks like the nodes, keys and files that the lock services keep for the lock of 2.
POISON = [
    "2/x__lock__0000000000",
    "2/_c_00000000000000000000000000000000-lock-0000000000",
    "2}:queue",
    "2:fence",
    "2~",
]
BELOW = ["2/1", "2//", "2%2F1", "/2"]
OUTSIDE = ["..", ".", "a/../2", "../../etc/passwd", "./2", "2/."]
ASTRAL = ["\U0001f600", "\U0001f600" * 60, "\U00020000", "2\U000e0041"]
TEMPLATES = ["{0.__class__}", "{x!r:>999999999}", "%s", "%(id)s", "<int:id>", "{id}", "${id}"]

each_face = pytest.mark.parametrize("face", FACES)


@pytest.fixture(scope="module", params=["redis", "zookeeper", "file"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("hostile")
    if request.param == "file":
        location = (folder / "locks").as_uri()
    else:
        location = request.getfixturevalue(f"{request.param}_server").url
    with Site(location) as site:
        yield site
    if request.param == "file":
        assert [entry.name for entry in folder.iterdir()] == ["locks"]


def sent_by_path(route: str, id: str) -> Sent:
    return Sent(path=f"/{route}/{id}".encode("utf-8", "surrogatepass"))


def sent_by_json(id: object) -> Sent:
    return Sent(path=b"/json", body=json.dumps({"id": id}).encode(), content_type=JSON)


def has_lock_of_its_own(site: Site, face: str, sent: Sent, name: str) -> None:
    """The view runs under *name*. Neither that lock nor the one of 2 is in the way of the other."""
    client = site.client(face)
    site.held.clear()
    assert (site.ask(face, sent).status, site.held) == (200, [(name,)])
    with client.lock(name):
        assert site.ask(face, sent).status == 423
        assert site.ask(face, Sent(path=b"/text/2")).status == 200
    with client.lock("text_2"), client.lock("json_2"):
        assert site.ask(face, sent).status == 200
    assert site.ask(face, Sent(path=b"/text/2")).status == 200
    assert site.nothing_is_held()


@pytest.mark.attack("A01")
@each_face
@pytest.mark.parametrize("id", POISON)
def test_an_id_that_looks_like_an_entry_of_another_lock_blocks_nobody(site: Site, face: str, id: str) -> None:
    has_lock_of_its_own(site, face, sent_by_path("text", id), f"text_{id}")
    has_lock_of_its_own(site, face, sent_by_json(id), f"json_{id}")


@pytest.mark.attack("A02")
@each_face
@pytest.mark.parametrize("id", BELOW)
def test_an_id_with_a_slash_is_no_place_below_another_lock(site: Site, face: str, id: str) -> None:
    has_lock_of_its_own(site, face, sent_by_json(id), f"json_{id}")


@pytest.mark.attack("A03")
@each_face
@pytest.mark.parametrize("id", OUTSIDE)
def test_an_id_leads_nowhere(site: Site, face: str, id: str) -> None:
    has_lock_of_its_own(site, face, sent_by_json(id), f"json_{id}")
    for route in ("slug", "number"):
        assert site.ask(face, sent_by_path(route, id)).code == "lock_name_invalid"


@pytest.mark.attack("A06")
@each_face
@pytest.mark.parametrize("id", ASTRAL)
def test_an_emoji_is_a_name_like_any_other(site: Site, face: str, id: str) -> None:
    has_lock_of_its_own(site, face, sent_by_json(id), f"json_{id}")


@pytest.mark.attack("A12")
@each_face
@pytest.mark.parametrize("id", TEMPLATES)
def test_an_id_that_is_a_format_string_is_text(site: Site, face: str, id: str) -> None:
    has_lock_of_its_own(site, face, sent_by_json(id), f"json_{id}")


@pytest.mark.attack("A12")
@pytest.mark.parametrize("template", [text for text in TEMPLATES if text[0] in "{%"])
def test_a_template_that_was_meant_as_a_format_string_is_refused_at_import(template: str) -> None:
    with pytest.raises(ConfigurationError):
        distributed_lock(f"product_{template}")(lambda request, id: None)


@pytest.mark.attack("A05", "A07", "A16")
@each_face
@pytest.mark.parametrize("id", ["\x00", "a\x07", "\x7f", "a\r\nSET x 1\r\n", "\ufffe", "\ud83d", "a\ud83d"])
def test_what_is_no_text_is_a_400_and_all_other_locks_go_on(site: Site, face: str, id: str) -> None:
    client = site.client(face)
    with client.lock("held_meanwhile") as grant:
        assert site.ask(face, sent_by_json(id)).code == "lock_name_invalid"
        assert site.ask(face, sent_by_json("2")).status == 200
        grant.check()
    assert site.nothing_is_held()
