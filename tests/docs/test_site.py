"""The built site (`make docs`) in a real browser: nothing is loaded from elsewhere, nothing complains, search finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

import browser

pytestmark = pytest.mark.slow

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
PHONE, LAPTOP = (390, 844), (1280, 900)
PAGES = ("index.html", "notebooks/gallery.html", "reference/recipe-keys.html")


@pytest.fixture(scope="module")
def chromium() -> browser.Browser:
    if not SITE.is_dir():
        (pytest.fail if browser.REQUIRED else pytest.skip)("the site is not built: make docs")
    try:
        return browser.find()
    except browser.NoBrowser as reason:
        if browser.REQUIRED:
            pytest.fail(f"a browser is required, but there is none: {reason}")
        pytest.skip(f"no browser: {reason}")


@pytest.fixture(params=[(LAPTOP, False), (PHONE, True)], ids=["laptop", "phone"])
def driver(request: pytest.FixtureRequest, chromium: browser.Browser) -> Iterator[Chrome]:
    (width, height), dark = request.param
    with chromium.opened(width, height, dark) as driver:
        yield driver


def search(driver: Chrome, word: str, page: str) -> None:
    """Type a word into the site's search until its results, which change with every letter, lead to a page."""
    waiting = WebDriverWait(driver, 30)
    body = driver.find_element(By.TAG_NAME, "body")

    def opened(driver: Chrome) -> WebElement | None:
        """The page listens to the keys once its script has run."""
        body.send_keys(Keys.CONTROL, "k")
        field: WebElement | None = driver.execute_script("return document.activeElement.shadowRoot?.activeElement")
        return field

    waiting.until(opened).send_keys(word)
    hits = f"return document.activeElement.shadowRoot.querySelectorAll('a[href*=\"{page}\"]').length"
    waiting.until(lambda d: d.execute_script(hits))


def test_pages_open_as_files_and_search_finds(driver: Chrome) -> None:
    for name in PAGES:
        driver.get((SITE / name).as_uri())
        assert driver.find_element(By.TAG_NAME, "h1").is_displayed()
        window, page = driver.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
        assert page <= window, f"{name} is wider than its window"
        broken = "return [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        assert driver.execute_script(broken) == []
    search(driver, "surrogate", page="python/neurons.html")
    complaints = [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"]  # type: ignore[no-untyped-call]
    assert complaints == []
