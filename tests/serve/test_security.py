"""Who is answered, what an answer allows, and that no file outside the collection is read."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from starlette.testclient import TestClient

from serve.conftest import BASE
from serve.small_index import build_index, drawing, png
from sumpool.search import Index
from sumpool.serve import build_app
from sumpool.serve.security import HEADERS, is_loopback
from sumpool.serve.server import ServeError, check_access

TOKEN = "a token with more than sixteen letters"


@pytest.fixture(scope="module")
def guarded(index: Index) -> Iterator[TestClient]:
    app = build_app(index, token=TOKEN, any_host=True)
    with TestClient(app, "http://photos.example", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize(
    "address", ["/", "/api/index", "/picture?image=1", "/static/page.js", "/no", "/search?k=x"]
)
def test_every_answer_has_the_headers_that_keep_browsers_safe(
    client: TestClient, address: str
) -> None:
    headers = client.get(address).headers
    assert {name: headers[name] for name in HEADERS} == dict(HEADERS)
    assert "cache-control" in headers


def test_the_policy_allows_no_other_site_and_no_inline_code() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_a_defect_tells_nothing_and_has_the_headers(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"cannot open {index.folder}/secret")

    app = build_app(index)
    with TestClient(app, BASE, raise_server_exceptions=False) as client:
        monkeypatch.setattr(Index, "search", broken)
        for address in ("/search?image=1", "/api/search?image=1"):
            response = client.get(address)
            assert response.status_code == 500
            assert "secret" not in response.text
            assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil", ""])
def test_other_names_of_this_machine_are_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000"])
def test_its_own_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/api/labels", headers={"host": host}).status_code == 200


def test_the_address_that_it_listens_on_is_answered(index: Index) -> None:
    with TestClient(build_app(index, hosts=["127.0.0.2"]), BASE) as client:
        for host, status in (("127.0.0.2:8000", 200), ("127.0.0.3:8000", 400)):
            assert client.get("/api/labels", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8001"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("address", ["/api/uploads", "/upload", "/api/search"])
def test_uploads_from_pages_of_other_sites_are_refused(
    client: TestClient, address: str, headers: dict[str, str]
) -> None:
    response = client.post(address, content=png(drawing(0, 80)), headers=headers)
    assert response.status_code == 403


def test_uploads_from_its_own_pages_are_accepted(client: TestClient) -> None:
    headers = {"origin": BASE, "sec-fetch-site": "same-origin"}
    response = client.post("/api/uploads", content=png(drawing(0, 81)), headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize("address", ["/", "/api/index", "/picture?image=1", "/?token=wrong"])
def test_without_the_token_nothing_is_told(guarded: TestClient, address: str) -> None:
    response = guarded.get(address)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "small.index" not in response.text
    assert "18 images" not in response.text


@pytest.mark.parametrize("scheme", ["Basic", "Bearer x", ""])
def test_a_wrong_header_is_no_token(guarded: TestClient, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {TOKEN}"}
    assert guarded.get("/api/index", headers=headers).status_code == 401


def test_the_token_opens_as_a_header(guarded: TestClient) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/index", headers=headers).status_code == 200
    assert guarded.get("/api/index").status_code == 401


def test_the_token_in_an_address_becomes_a_cookie_and_leaves_the_address(
    guarded: TestClient,
) -> None:
    response = guarded.get("/search", params={"image": 1, "token": TOKEN, "k": 3})
    assert response.status_code == 303
    assert response.headers["location"] == "/search?image=1&k=3"
    cookie = response.headers["set-cookie"]
    assert TOKEN.replace(" ", "") not in cookie.replace(" ", "")
    assert re.search(r"HttpOnly; .*SameSite=lax", cookie)
    assert guarded.get(response.headers["location"]).status_code == 200
    guarded.cookies.clear()
    assert guarded.get("/").status_code == 401


def test_a_redirect_never_leads_to_another_site(guarded: TestClient) -> None:
    response = guarded.get("//evil.example/", params={"token": TOKEN})
    assert not response.headers.get("location", "/").startswith("//")
    guarded.cookies.clear()


def test_listening_elsewhere_needs_a_token() -> None:
    with pytest.raises(ServeError, match=r"host 0\.0\.0\.0: give them a token of at least 16"):
        check_access("0.0.0.0", None)
    with pytest.raises(ServeError, match="token must have at least 16 characters, got 5"):
        check_access("0.0.0.0", "short")
    with pytest.raises(ValueError, match="token must be given"):
        build_app(None, any_host=True)  # type: ignore[arg-type]
    check_access("0.0.0.0", TOKEN)
    check_access("127.0.0.1", None)
    assert not is_loopback("photos.example")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Path, TestClient]]:
    """A collection of its own, to be damaged."""
    with TestClient(build_app(build_index(tmp_path)), BASE) as client:
        yield tmp_path / "photos" / "circle", client


def test_a_link_out_of_the_collection_leads_to_the_indexed_image_alone(
    own: tuple[Path, TestClient],
) -> None:
    folder, client = own
    (folder / "1.png").rename(folder.parent.parent / "moved.png")
    (folder / "1.png").symlink_to(folder.parent.parent / "moved.png")
    ids = {it["path"]: it["id"] for it in client.get("/api/images").json()["images"]}
    for more in ("", "&size=small", "&show=weights"):
        assert client.get(f"/picture?image={ids['circle/1.png']}{more}").status_code == 200


def test_a_link_to_what_was_not_indexed_is_not_followed(own: tuple[Path, TestClient]) -> None:
    folder, client = own
    outside = folder.parent.parent / "outside.png"
    Image.new("RGB", (48, 40), "red").save(outside)
    ids = {it["path"]: it["id"] for it in client.get("/api/images").json()["images"]}
    link, gone = ids["circle/1.png"], ids["circle/2.png"]
    (folder / "1.png").unlink()
    (folder / "1.png").symlink_to(outside)
    (folder / "2.png").unlink()
    for id in (link, gone):
        for address in (
            f"/picture?image={id}",
            f"/picture?image={id}&size=small",
            f"/picture?image={id}&show=weights",
            f"/api/search?image={id}&box=1,1,20,20",
            f"/api/match?image=0&with={id}",
        ):
            response = client.get(address)
            assert response.status_code == 404, address
            assert str(folder.parent.parent) not in response.text
            assert "outside.png" not in response.text
    shutil.rmtree(folder)
    assert client.get(f"/image/{gone}").status_code == 200


@pytest.mark.parametrize(
    "address",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2f..%2f..%2fetc%2fpasswd",
        "/static//etc/passwd",
        "/picture?image=../../etc/passwd",
        "/search?upload=../../etc/passwd",
        "/image/..%2f..%2fetc",
    ],
)
def test_paths_in_addresses_lead_nowhere(client: TestClient, address: str) -> None:
    response = client.get(address)
    assert response.status_code in (400, 404)
    assert "root:" not in response.text
    assert "def build_app" not in response.text
