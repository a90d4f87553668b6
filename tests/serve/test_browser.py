"""The page in a real browser: what visitors do, with mouse, finger and keyboard."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from serve.served import Served, served
from serve.small_index import CLASSES, PER_CLASS, drawing, png
from sumpool.search import Index

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("browser")]

PHONE = {"width": 390, "height": 844}
#: Views that have to fit on a phone; the first image has a long name that is a script.
VIEWS = (
    "/",
    "/search?image=0&box=4,4,30,30&show=match",
    "/image/0",
    "/match?image=0&with=9",
    "/prototypes",
    "/prototype/0",
    "/map",
    "/duplicates",
    "/search?image=999",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(index: Index, browser: Browser) -> Iterator[Served]:
    with served(index.folder) as started:
        yield started


@pytest.fixture
def page(browser: Browser, server: Served) -> Iterator[Page]:
    """An empty page that fails the test if a script of it fails, or one of the data runs."""
    with browser.new_context(base_url=server.address) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda it: errors.append(it.text) if "Refused" in it.text else None)
        yield page
        assert page.evaluate("window.harmed") is None
        assert errors == []


def choose_file(page: Page, content: bytes) -> None:
    file = {"name": "a.png", "mimeType": "image/png", "buffer": content}
    page.set_input_files("input[type=file]", [file])  # type: ignore[list-item]


def wait_until_drawn(page: Page, count: int) -> None:
    """Wait for the first ``count`` images of cards; others load when they come into view."""
    page.wait_for_function(
        """count => {
            const images = [...document.querySelectorAll(".card img")].slice(0, count);
            return images.length === count && images.every((it) => it.complete && it.naturalWidth);
        }""",
        arg=count,
    )


def cards(page: Page) -> int:
    return page.locator(".card").count()


def test_an_uploaded_image_leads_to_its_results(page: Page) -> None:
    page.goto("/")
    choose_file(page, png(drawing(1, 60)))
    page.wait_for_url(re.compile(r"/search\?upload=[0-9a-f]{32}$"))
    assert page.locator("h1").inner_text() == "Similar to your image"
    assert cards(page) == 3 * PER_CLASS


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_a_dropped_or_pasted_image_is_searched_by(page: Page, kind: str) -> None:
    page.goto("/map")
    page.evaluate(
        """([kind, bytes]) => {
            const files = new DataTransfer();
            files.items.add(new File([new Uint8Array(bytes)], "a.png", { type: "image/png" }));
            const event = kind === "drop"
                ? new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true })
                : new ClipboardEvent("paste", { clipboardData: files, bubbles: true });
            document.body.dispatchEvent(event);
        }""",
        [kind, list(png(drawing(1, 61)))],
    )
    page.wait_for_url(re.compile(r"/search\?upload="))
    assert cards(page) > 0


def test_a_bad_upload_is_explained_and_the_page_stays(page: Page) -> None:
    page.goto("/")
    choose_file(page, b"no image")
    alert = page.get_by_role("alert")
    alert.filter(has_text="in none of the formats").wait_for()
    assert page.url.endswith("/")


def test_clicking_through_and_back(page: Page) -> None:
    page.goto("/")
    visited = [page.url]
    for _ in range(3):
        page.locator(".card .frame").first.click()
        page.wait_for_url(lambda url: url != visited[-1])
        assert "/search?image=" in page.url
        visited.append(page.url)
    page.get_by_role("link", name="Why?").first.click()
    page.wait_for_url(re.compile("/match"))
    for address in reversed(visited):
        page.go_back()
        page.wait_for_url(address)
        assert cards(page) > 0


def test_the_class_filter_and_the_number_of_results(page: Page) -> None:
    page.goto("/search?image=7")
    page.get_by_label("Class").fill(CLASSES[2])
    page.get_by_role("button", name="Search", exact=True).click()
    page.wait_for_url(re.compile("label="))
    assert cards(page) == PER_CLASS
    assert set(page.locator(".card b").all_inner_texts()) == {CLASSES[2]}
    page.get_by_label("Results", exact=False).first.select_option("12")
    page.wait_for_url(re.compile("k=12"))
    assert "label=" in page.url
    assert "box=" not in page.url  # empty fields stay out of the address
    page.go_back()
    assert page.get_by_label("Class").is_enabled()


def test_a_box_drawn_with_the_mouse_is_searched_by(page: Page) -> None:
    page.goto("/search?image=7")
    box = page.locator("svg.picture").bounding_box()
    assert box is not None
    x, y, width, height = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + width / 4, y + height / 4)
    page.mouse.down()
    page.mouse.move(x + width / 2, y + height / 2, steps=3)
    page.mouse.move(x + 3 * width / 4, y + height * 0.8)
    page.mouse.up()
    page.wait_for_url(re.compile("box="))
    (box_argument,) = parse_qs(urlsplit(page.url).query)["box"]
    drawn = [int(it) for it in box_argument.split(",")]
    assert drawn == pytest.approx([12, 10, 36, 32], abs=1)
    assert page.locator("h1").inner_text() == "Similar to a part of circle"
    fields = page.locator(".numbers input")
    assert [int(fields.nth(it).input_value()) for it in range(4)] == drawn
    page.get_by_role("link", name="Whole image").click()
    page.wait_for_url(lambda url: "box=" not in url)


def test_a_box_drawn_with_a_finger_is_searched_by(browser: Browser, server: Served) -> None:
    with browser.new_context(base_url=server.address, viewport=PHONE, has_touch=True) as context:
        page = context.new_page()
        page.goto("/search?image=7")
        box = page.locator("svg.picture").bounding_box()
        assert box is not None
        touch = context.new_cdp_session(page)
        for kind, share in (("touchStart", 0.3), ("touchMove", 0.7)):
            place = {"x": box["x"] + box["width"] * share, "y": box["y"] + box["height"] * share}
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [place]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        page.wait_for_url(re.compile(r"box=\d+"))


def test_everything_can_be_reached_with_the_keyboard(page: Page) -> None:
    page.goto("/search?image=7")
    page.get_by_label("left edge of the part, in pixels").focus()
    for number in ("8", "6", "40", "30"):
        page.keyboard.type(number)
        page.keyboard.press("Tab")
    page.get_by_label("bottom edge of the part, in pixels").press("Enter")
    page.wait_for_url(re.compile("box=8(,|%2C)6(,|%2C)40(,|%2C)30"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.locator(".card .frame").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "box=" not in url)


def test_overlays_are_drawn(page: Page) -> None:
    page.goto("/search?image=7&k=12")
    for name, shown in (("Pooling weights", "weights"), ("Match", "match")):
        page.get_by_label(name).check()
        page.wait_for_url(re.compile(f"show={shown}"))
        wait_until_drawn(page, 1)


def test_the_page_of_a_prototype_shows_its_patches(page: Page) -> None:
    page.goto("/prototypes")
    page.locator(".card .frame").first.click()
    page.wait_for_url(re.compile(r"/prototype/\d$"))
    wait_until_drawn(page, 6)
    assert page.locator(".card img").count() == 3 * PER_CLASS


def test_the_map_is_clicked_into_and_its_address_shared(page: Page) -> None:
    page.goto("/map")
    page.get_by_text("near means similar").wait_for()
    page.locator("#map").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"/map\?image=\d+"))
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_url(re.compile(r"view="))
    shared = page.url
    page.goto("/")
    page.goto(shared)
    page.locator("#found img").wait_for()
    point = page.locator("#found a").first.get_attribute("href")
    page.locator("#map").press("Enter")
    page.wait_for_url(lambda url: url.endswith(str(point)))


def test_a_shared_address_shows_another_visitor_the_same(browser: Browser, page: Page) -> None:
    page.goto("/")
    choose_file(page, png(drawing(0, 62)))
    page.wait_for_url(re.compile("/search"))
    page.goto(page.url + "&k=7&box=4,4,40,30&show=match")
    with browser.new_context() as other:
        visitor = other.new_page()
        visitor.goto(page.url)
        results = [
            it.locator(".card .frame").evaluate_all("all => all.map((it) => it.href)")
            for it in (page, visitor)
        ]
    assert results[0] == results[1]
    assert len(results[0]) == 7


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_fits_on_a_phone_and_runs_no_script_of_the_data(
    browser: Browser, server: Served, view: str
) -> None:
    with browser.new_context(base_url=server.address, viewport=PHONE) as context:
        page = context.new_page()
        page.goto(view)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert page.evaluate("window.harmed") is None
        small = page.evaluate(
            """() => [...document.querySelectorAll("button, .button, select, input[type=number]")]
                .filter((it) => it.offsetParent && it.offsetHeight < 36)
                .map((it) => it.outerHTML)"""
        )
        assert small == []


def test_a_page_works_without_scripts(browser: Browser, server: Served, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    drawing(0, 63).save(file)
    with browser.new_context(base_url=server.address, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto("/")
        page.set_input_files("input[type=file]", file)
        page.get_by_role("button", name="Search").click()
        page.wait_for_url(re.compile("/search"))
        page.get_by_label("Part", exact=False).fill("4,4,30,30")
        page.get_by_role("button", name="Search", exact=True).click()
        page.wait_for_url(re.compile("box=4"))
        assert cards(page) > 0
