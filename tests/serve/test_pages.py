"""Pages show what the index holds, escaped, each at an address of its own."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

from serve.conftest import BASE
from serve.small_index import CLASSES, PER_CLASS, SCRIPT_NAME, build_index, drawing, png
from sumpool.search import Index
from sumpool.serve import build_app

VIEWS = (
    "/",
    "/?seed=3",
    "/search?image=1",
    "/search?image=1&k=5&label=square&box=4,4,30,30&show=match",
    "/search?image=1&show=weights&threshold=.5",
    "/image/1",
    "/image/1?show=weights",
    "/match?image=1&with=2",
    "/match?image=1&with=2&box=4,4,30,30",
    "/prototypes",
    "/prototype/0",
    "/map",
    "/map?label=square&image=3&view=.5,.5,2",
    "/duplicates",
    "/duplicates?threshold=0.5",
)


class Page(HTMLParser):
    """The tags of a page, and everything that they load or lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [values for name, values in self.tags if name == tag]

    @property
    def addresses(self) -> set[str]:
        found = {values.get(key) for _, values in self.tags for key in ("src", "href")}
        return {it for it in found if it is not None}


def page_of(client: TestClient, address: str) -> Page:
    response = client.get(address)
    assert response.status_code == 200, response.text
    return Page(response.text)


def cards(page: Page) -> list[dict[str, Any]]:
    return [it for it in page.all("li") if (it.get("class") or "").startswith("card")]


@pytest.mark.parametrize("address", VIEWS)
def test_names_never_become_tags_and_no_page_has_inline_code(
    client: TestClient, address: str
) -> None:
    page = page_of(client, address)
    handlers = [name for _, values in page.tags for name in values if name.startswith("on")]
    assert handlers == []
    assert all("src" in it for it in page.all("script"))
    assert page.all("style") == []
    assert not any("style" in values for _, values in page.tags)
    assert all(it.startswith(("/", "#")) for it in page.addresses)


@pytest.mark.parametrize("address", VIEWS)
def test_fields_and_pictures_have_names(client: TestClient, address: str) -> None:
    page = page_of(client, address)
    assert all("alt" in it for it in page.all("img"))
    assert all(it.get("aria-label") for it in page.all("svg") if it.get("role") == "img")
    assert page.all("html")[0]["lang"] == "en"
    assert page.all("meta")[1]["content"] == "width=device-width, initial-scale=1"


def test_every_link_of_every_page_leads_somewhere(client: TestClient) -> None:
    links = {it for address in VIEWS[:9] for it in page_of(client, address).addresses}
    local = [it for it in sorted(links) if it.startswith("/") and "seed" not in it]
    sample = [it for it in local if not it.startswith("/picture")][:25] + local[-10:]
    assert {it: client.get(it).status_code for it in sample} == dict.fromkeys(sample, 200)


def test_results_have_label_similarity_and_path_most_similar_first(
    client: TestClient, index: Index
) -> None:
    text = client.get("/search?image=1&k=4").text
    expected = index.search(1, 4)
    shown = re.findall(r'class="number"[^>]*>([-\d.]+)<', text)
    assert shown == [f"{it.similarity:.3f}" for it in expected]
    for it in expected:
        assert f'href="/search?image={it.id}"' in text
    assert text.count('class="card') == 4


def test_the_class_filter_shows_that_class_alone(client: TestClient) -> None:
    script = CLASSES[2]
    response = client.get("/search", params={"image": 7, "label": script})
    page = Page(response.text)
    assert len(cards(page)) == PER_CLASS
    assert script not in response.text
    assert "&lt;img src=x onerror=" in response.text
    assert {it["value"] for it in page.all("option") if "value" in it} == set(CLASSES)


def test_a_part_is_marked_on_the_query_and_stays_in_the_links(client: TestClient) -> None:
    page = page_of(client, "/search?image=1&box=4,6,30,26")
    rect = page.all("rect")[0]
    assert (rect["x"], rect["y"], rect["width"], rect["height"]) == ("4", "6", "26", "20")
    assert any(it.startswith("/match?image=1&box=4,6,30,26&with=") for it in page.addresses)


def test_overlays_are_addresses_of_the_results(client: TestClient) -> None:
    plain, weights, match = (
        page_of(client, f"/search?image=1&k=2&show={show}").all("img")[0]["src"] or ""
        for show in ("plain", "weights", "match")
    )
    id = re.findall(r"image=(\d+)", plain)[0]
    assert weights == f"/picture?image={id}&show=weights&size=small"
    assert match == f"/picture?image=1&show=match&with={id}&side=result&size=small"
    bodies = {client.get(it).content for it in (plain, weights, match)}
    assert len(bodies) == 3


def test_an_uploaded_form_leads_to_the_address_of_its_results(client: TestClient) -> None:
    content = png(drawing(1, 50))
    response = client.post("/upload", files={"file": ("a.png", content)})
    assert response.status_code == 303
    address = response.headers["location"]
    assert re.fullmatch(r"/search\?upload=[0-9a-f]{32}", address)
    assert client.post("/upload", files={"file": ("b.png", content)}).headers["location"] == address
    page = page_of(client, f"{address}&k=3")
    assert len(cards(page)) == 3
    assert page.all("image")[0]["href"] == f"/picture?{address.partition('?')[2]}"


def test_the_media_type_of_a_form_may_be_spelled_in_capitals(client: TestClient) -> None:
    body = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    body += png(drawing(1, 50)) + b"\r\n--B--\r\n"
    headers = {"content-type": "Multipart/Form-Data; boundary=B"}
    assert client.post("/upload", content=body, headers=headers).status_code == 303


@pytest.mark.parametrize("files", [{}, {"other": ("a.png", b"x")}, {"file": ("a.png", b"")}])
def test_a_form_without_an_image_says_so(client: TestClient, files: Any) -> None:
    response = client.post("/upload", files=files, data={} if files else {"file": "text"})
    assert response.status_code == 400
    assert 'role="alert"' in response.text


def test_scripts_in_file_names_are_text(client: TestClient, index: Index) -> None:
    names = index.images["path"].to_pylist()
    id = next(id for id, name in enumerate(names) if name.endswith(SCRIPT_NAME))
    text = client.get(f"/image/{id}").text
    assert "<svg onload" not in text
    assert "&lt;svg onload=" in text


def test_a_pooling_that_cannot_explain_offers_no_match(tmp_path: Any) -> None:
    with TestClient(build_app(build_index(tmp_path, "gsop")), BASE) as client:
        page = page_of(client, "/search?image=1")
        assert not any(it.startswith("/match") for it in page.addresses)
        assert not any(it.get("value") == "match" for it in page.all("input"))
        assert client.get("/search?image=1&show=match").status_code == 400
        assert "/prototypes" not in page.addresses
        assert not any(it.startswith("/match") for it in page_of(client, "/image/1").addresses)
        assert client.get("/match?image=1&with=2").status_code == 404
        assert "has no prototypes" in client.get("/prototypes").text
        assert client.get("/prototype/0").status_code == 404
