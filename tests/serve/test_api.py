"""The JSON interface is the one that openapi.json describes, and says what the index says."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any
from unittest.mock import Mock

import jsonschema
import numpy as np
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from serve.conftest import BASE
from serve.small_index import PER_CLASS, drawing, png
from sumpool.search import Index
from sumpool.serve import Limits, build_app
from sumpool.serve import app as app_module

DOCUMENT = json.loads(resources.files("sumpool.serve").joinpath("openapi.json").read_bytes())
QUERIES = (
    ("/api/index", "/api/index"),
    ("/api/labels", "/api/labels"),
    ("/api/images", "/api/images?offset=2&limit=3&label=square"),
    ("/api/images/{id}", "/api/images/3"),
    ("/api/search", "/api/search?image=3&k=5"),
    ("/api/search", "/api/search?image=3&box=2,2,40,30&label=circle&threshold=-1"),
    ("/api/match", "/api/match?image=3&with=4"),
    ("/api/prototypes", "/api/prototypes"),
    ("/api/prototypes/{number}", "/api/prototypes/1?k=2"),
    ("/api/map", "/api/map"),
    ("/api/duplicates", "/api/duplicates?threshold=.99"),
)


def check_answer(path: str, method: str, answer: Any) -> None:
    """Raise unless ``answer`` is as the document says."""
    content = DOCUMENT["paths"][path][method]["responses"]["200"]["content"]
    schema = {**content["application/json"]["schema"], "components": DOCUMENT["components"]}
    jsonschema.validate(answer, schema)


@pytest.mark.parametrize(("path", "query"), QUERIES)
def test_answers_are_as_documented(client: TestClient, path: str, query: str) -> None:
    response = client.get(query)
    assert response.status_code == 200, response.text
    check_answer(path, "get", response.json())


def test_every_address_is_documented_and_every_documented_one_is_there() -> None:
    routes = app_module._json_routes(Mock())
    found = {
        (it.path.replace(":whole", ""), method.lower())
        for it in routes
        if isinstance(it, Route) and it.path != "/api/openapi.json"
        for method in it.methods or ()
        if method != "HEAD"
    }
    paths = DOCUMENT["paths"]
    assert found == {(path, method) for path, methods in paths.items() for method in methods}


def test_documented_arguments_are_the_accepted_ones(client: TestClient) -> None:
    for path, methods in DOCUMENT["paths"].items():
        for method, described in methods.items():
            address = path.replace("{id}", "1").replace("{number}", "1")
            response = client.request(method, f"{address}?nonsense=1")
            assert response.status_code == 400, address
            names = [it["name"] for it in described["parameters"] if it["in"] == "query"]
            listed = re.search(r"accepted are ([a-z, ]+)", response.text)
            known = listed[1].split(", ") if listed else []
            assert sorted(known) == sorted(names), address


def test_the_document_is_served(client: TestClient) -> None:
    assert client.get("/api/openapi.json").json() == DOCUMENT


def test_search_finds_what_the_index_finds(client: TestClient, index: Index) -> None:
    for values, expected in (
        ({"image": 3, "k": 5}, index.search(3, 5)),
        ({"image": 3, "k": 4, "label": "circle"}, index.search(3, 4, where={"label": "circle"})),
        ({"image": 3, "k": 5, "box": "4,4,30,20"}, index.search(3, 5, box=(4, 4, 30, 20))),
        ({"image": 3, "threshold": "0.9"}, index.search(3, 24, threshold=0.9)),
    ):
        results = client.get("/api/search", params=values).json()["results"]
        assert [it["id"] for it in results] == [it.id for it in expected]
        assert [it["similarity"] for it in results] == pytest.approx(
            [it.similarity for it in expected], abs=1e-6
        )


def test_a_posted_image_is_searched_by_and_kept(client: TestClient, index: Index) -> None:
    image = drawing(2, 70)
    response = client.post("/api/search?k=3&box=1,2,40,38", content=png(image))
    answer = response.json()
    check_answer("/api/search", "post", answer)
    expected = index.search(image, 3, box=(1, 2, 40, 38))
    assert [it["id"] for it in answer["results"]] == [it.id for it in expected]
    again = client.get("/api/search", params={"upload": answer["query"]["upload"], "k": 3})
    assert [it["id"] for it in again.json()["results"]] == [it.id for it in index.search(image, 3)]


@pytest.mark.parametrize("address", ["/api/uploads", "/api/search"])
def test_a_form_is_refused_with_the_command_that_works(client: TestClient, address: str) -> None:
    response = client.post(address, files={"file": ("a.png", png(drawing(0, 3)))})
    assert response.status_code == 415
    assert "curl --data-binary @photo.jpg" in response.json()["error"]


@pytest.mark.parametrize("path", ["/api/uploads", "/api/search"])
def test_refusals_of_uploads_are_as_documented(index: Index, path: str) -> None:
    documented = DOCUMENT["paths"][path]["post"]["responses"]
    with TestClient(build_app(index, limits=Limits(1000, 1000, 5000)), BASE) as client:
        answers = [
            client.post(path, content=b""),
            client.post(path, content=b"a", headers={"origin": "null"}),
            client.post(path, content=b"a" * 100_000),
            client.post(path, files={"file": b"a"}),
        ]
    assert [it.status_code for it in answers] == [400, 403, 413, 415]
    assert "408" in documented  # an upload that takes too long
    for answer in answers:
        name = documented[str(answer.status_code)]["$ref"].rpartition("/")[2]
        content = DOCUMENT["components"]["responses"][name]["content"]
        assert answer.headers["content-type"].partition(";")[0] in content


def test_an_upload_is_named_after_its_content(client: TestClient) -> None:
    content = png(drawing(1, 71))
    answers = [client.post("/api/uploads", content=content).json() for _ in range(2)]
    check_answer("/api/uploads", "post", answers[0])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("threshold", ["1e-05", "0.12345678901234567", "-1", ".5", "1.", "-0.0"])
def test_a_threshold_is_any_number_within(client: TestClient, threshold: str) -> None:
    assert client.get(f"/api/search?image=1&threshold={threshold}").status_code == 200


def test_heat_maps_sum_to_the_similarity(client: TestClient) -> None:
    answer = client.get("/api/match?image=3&with=9&box=2,2,40,30").json()
    for name in ("query_map", "result_map"):
        assert np.sum(answer[name]) == pytest.approx(answer["similarity"], abs=1e-5)


def test_nothing_similar_is_said_so(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    found = client.get("/api/search?image=3&threshold=1").json()
    assert found["results"] == []
    assert found["verdict"] == "Nothing is at least 1 similar."


def test_duplicates_come_with_the_same_content_first(client: TestClient) -> None:
    groups = client.get("/api/duplicates?threshold=1").json()["groups"]
    assert [it["exact"] for it in groups][:1] == [True]
    assert groups[0]["count"] == 2
    assert {it["label"] for it in groups[0]["images"]} == {"circle"}


def test_the_map_has_every_image_of_a_small_collection_once(client: TestClient) -> None:
    points = client.get("/api/map").json()["points"]
    assert sorted(it["id"] for it in points) == list(range(3 * PER_CLASS))
    assert all(0 <= it[axis] <= 1 for it in points for axis in ("x", "y"))


def test_prototypes_are_sorted_by_share(client: TestClient, index: Index) -> None:
    found = client.get("/api/prototypes").json()["prototypes"]
    shares = [it["share"] for it in found]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=1e-4)
    number = found[0]["prototype"]
    ids = [it["id"] for it in client.get(f"/api/prototypes/{number}?k=3").json()["results"]]
    assert ids == [it.id for it in index.search_prototype(number, 3)]


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("/api/search", 400, "give either image or upload"),
        ("/api/search?image=1&upload=x", 400, "give either image or upload"),
        ("/api/search?image=x", 400, "image must be a whole number from 0 to"),
        ("/api/search?image=1&k=0", 400, "k must be a whole number from 1 to 200, got '0'"),
        ("/api/search?image=1&k=1&k=2", 400, "k must be given once"),
        ("/api/search?image=1&box=1,2,3", 400, "box must be left,top,right,bottom in whole"),
        ("/api/search?image=1&box=9,9,9,9", 400, "inside the image of 48 × 40"),
        ("/api/search?image=1&box=0,0,49,4", 400, "inside the image of 48 × 40"),
        ("/api/search?image=1&threshold=nan", 400, "threshold must be a number from -1 to 1"),
        ("/api/search?image=1&label=circl", 400, "no image has the label 'circl'; there are circ"),
        ("/api/search?image=1&show=plain", 400, "unknown argument 'show': accepted are"),
        ("/api/search?image=99", 404, "there is no image 99"),
        ("/api/search?upload=abc", 404, "this upload is no longer kept"),
        ("/api/images?label=squar", 400, "no image has the label 'squar'; there are square"),
        ("/api/images/99", 404, "there is no image 99"),
        (f"/api/images/{'9' * 5000}", 404, "Not Found"),
        ("/api/images/-1", 404, "Not Found"),
        ("/api/match?image=1", 400, "with is missing"),
        ("/api/match?image=1&with=99", 404, "there is no image 99"),
        ("/api/prototypes/4", 404, "there is no prototype 4: the model has 4 prototypes"),
        ("/api/duplicates?threshold=0", 400, "threshold must be above 0"),
        ("/api/nothing", 404, "Not Found"),
    ],
)
def test_errors_are_one_line_that_names_the_argument(
    client: TestClient, query: str, status: int, message: str
) -> None:
    response = client.get(query)
    assert response.status_code == status
    assert set(response.json()) == {"error"}
    assert message in response.json()["error"]


@pytest.mark.parametrize(
    "query",
    ["image=1", "image=1&size=small&show=weights", "image=1&show=patch&prototype=2"]
    + [f"image=1&show=match&with=5&side={side}" for side in ("query", "result")],
)
def test_pictures_are_jpeg_and_may_be_cached(client: TestClient, query: str) -> None:
    response = client.get(f"/picture?{query}")
    assert response.status_code == 200
    assert response.headers["content-type"] == "image/jpeg"
    assert response.headers["cache-control"] == "private, max-age=600"
    assert response.content[:3] == b"\xff\xd8\xff"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("image=1&show=patch", "prototype is missing"),
        ("image=1&show=match", "with is missing"),
        ("image=1&size=huge", "size must be one of small, large, got"),
        ("image=1&show=plain&box=1,1,9,9", "unknown argument"),
        ("image=1&show=weights&with=2", "unknown argument"),
        ("image=1&show=patch&prototype=1&side=query", "unknown argument"),
    ],
)
def test_a_picture_takes_the_arguments_that_it_needs(
    client: TestClient, query: str, message: str
) -> None:
    response = client.get(f"/picture?{query}")
    assert response.status_code == 400
    assert message in response.json()["error"]
