"""The pages in a real browser: nothing is loaded, nothing complains, pointing and switching work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

import browser
import synthetic
from picojoule.report import Comparison, write

pytestmark = pytest.mark.slow

STRENGTHS = (0, 1, 64, 1024)
KINDS, POWERS, SEEDS = ("syn", "total", "balance"), (1, 2), (0, 1)
PENALISED = len(KINDS) * len(POWERS) * (len(STRENGTHS) - 1) * len(SEEDS)
PHONE, LAPTOP = (390, 844), (1280, 900)
MARKS = "#tradeoff path[aria-roledescription='point']"


@pytest.fixture(scope="module")
def chromium() -> browser.Browser:
    try:
        return browser.find()
    except browser.NoBrowser as reason:
        if browser.REQUIRED:
            pytest.fail(f"a browser is required, but there is none: {reason}")
        pytest.skip(f"no browser: {reason}")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("runs")
    synthetic.fill(into, synthetic.recipes(KINDS, POWERS, STRENGTHS, SEEDS, epochs=4))
    changes = ["optimizer.name=sgd", "optimizer.lr=0.1", "neuron.surrogate=triangle", "data.augment=true"]
    other = synthetic.recipes(["syn"], [1], STRENGTHS, [0], epochs=4, overrides=changes)  # with a long label
    synthetic.fill(into, other[:-1])
    synthetic.write(into, other[-1], finished=False).write_failure("the loss became nan")
    (into / "broken").mkdir()
    (into / "broken" / "recipe.toml").write_text("seed = [")
    return write(into, drawn=0).page


def shown(driver: Chrome, page: Path) -> Chrome:
    driver.get(page.as_uri())
    until(driver, lambda: driver.execute_script("return document.documentElement.dataset.ready") == "yes")
    return driver


@pytest.fixture(scope="module")
def _laptop(chromium: browser.Browser) -> Iterator[Chrome]:
    with chromium.opened(*LAPTOP) as driver:
        yield driver


@pytest.fixture
def driver(_laptop: Chrome, page: Path) -> Chrome:
    """The page afresh."""
    return shown(_laptop, page)


def until(driver: Chrome, condition: Callable[[], object]) -> None:
    WebDriverWait(driver, 60, poll_frequency=0.05).until(lambda _: condition())


def marks(driver: Chrome) -> list[WebElement]:
    return driver.find_elements(By.CSS_SELECTOR, MARKS)


def labels(driver: Chrome) -> list[str]:
    """What each mark says to a screen reader: the fields of its run."""
    script = "return [...document.querySelectorAll(arguments[0])].map((mark) => mark.getAttribute('aria-label'))"
    found: list[str] = driver.execute_script(script, MARKS)
    return found


def switch(driver: Chrome, group: str, value: str) -> None:
    driver.find_element(By.CSS_SELECTOR, f"#{group} label:has(input[value='{value}'])").click()


def text(driver: Chrome, name: str) -> str:
    return driver.find_element(By.ID, name).text


def complaints(driver: Chrome) -> list[Any]:
    return [entry for entry in driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]


def requests(driver: Chrome) -> list[str]:
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


def no_sideways_scroll(driver: Chrome) -> bool:
    return bool(driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_opens_on_every_screen(
    chromium: browser.Browser, page: Path, size: tuple[int, int], dark: bool
) -> None:
    with chromium.opened(*size, dark=dark) as driver:
        shown(driver, page)
        assert complaints(driver) == []
        assert requests(driver) == [page.as_uri()]
        assert no_sideways_scroll(driver)
        assert len(marks(driver)) == PENALISED + len(SEEDS)
        charts = driver.find_elements(By.CSS_SELECTOR, ".chart")
        assert len(charts) == 8
        for chart in charts:
            drawing = chart.find_element(By.CSS_SELECTOR, "svg.marks")
            assert 200 < drawing.size["width"] <= chart.size["width"]
        assert is_dark(driver) == dark
        assert is_light_text(driver) == dark


def brightness(colour: str) -> float:
    """Of "rgb(r, g, b)", from 0 to 1."""
    return sum(float(part) for part in colour.partition("(")[2].strip(")").split(",")[:3]) / (3 * 255)


def is_dark(driver: Chrome) -> bool:
    script = "return getComputedStyle(document.body).backgroundColor"
    return brightness(driver.execute_script(script)) < 0.5


def is_light_text(driver: Chrome) -> bool:
    script = "return getComputedStyle(document.querySelector('#tradeoff .role-axis-label text')).fill"
    return brightness(driver.execute_script(script)) > 0.5


def test_the_charts_follow_the_colours_of_the_system(driver: Chrome) -> None:
    assert not is_light_text(driver)
    switch(driver, "seeds", "1")
    until(driver, lambda: len(marks(driver)) == PENALISED // 2 + 1)
    for dark in (True, False):
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        until(driver, lambda dark=dark: is_light_text(driver) == dark)
        assert is_dark(driver) == dark
        assert len(marks(driver)) == PENALISED // 2 + 1  # what was switched off stays off


def test_pointing_at_a_mark_shows_its_run(driver: Chrome) -> None:
    wanted = next(mark for mark in marks(driver) if "Ω_balance" in mark.get_attribute("aria-label"))
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", wanted)
    ActionChains(driver).move_to_element(wanted).perform()
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible"))
    told = text(driver, "vg-tooltip-element")
    assert "cnn7-fashion-mnist-" in told
    for word in ("run", "penalty", "power", "λ'", "seed", "accuracy", "energy"):
        assert word in told


@pytest.mark.parametrize(
    ("group", "value", "left"),
    [
        ("kinds", "Ω_syn", PENALISED * 2 // 3 + 2),
        ("variants", "p = 2", PENALISED // 2 + 2),
        ("seeds", "1", PENALISED // 2 + 1),
    ],
)
def test_switching_hides_and_shows(driver: Chrome, group: str, value: str, left: int) -> None:
    everything = labels(driver)
    word = f"seed: {value}" if group == "seeds" else value
    assert any(word in label for label in everything)
    switch(driver, group, value)
    until(driver, lambda: len(marks(driver)) == left)
    assert not any(word in label for label in labels(driver))
    switch(driver, group, value)
    until(driver, lambda: len(marks(driver)) == len(everything))
    assert sorted(labels(driver)) == sorted(everything)
    assert complaints(driver) == []


def test_it_says_in_which_layers_the_energy_was_saved(driver: Chrome) -> None:
    said = driver.find_element(By.ID, "run-saved").text
    amount, _, parts = said.rstrip(".").partition(" saved an image: ")
    assert amount.endswith("J")
    shares = {part.split()[0]: float(part.split()[1]) for part in parts.split(", ")}
    assert shares.keys() == synthetic.LAYERS.keys()
    assert abs(sum(shares.values()) - 100) <= len(shares) / 2
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_without_a_seed_the_means_move(driver: Chrome) -> None:
    def lines() -> list[str]:
        script = (
            "return [...document.querySelectorAll('#tradeoff .mark-line path')].map((line) => line.getAttribute('d'))"
        )
        found: list[str] = driver.execute_script(script)
        return found

    before = lines()
    assert len(before) == len(KINDS) * len(POWERS)
    switch(driver, "seeds", "0")
    until(driver, lambda: len(lines()) == len(before) and not set(lines()) & set(before))


def test_choosing_a_mark_shows_its_run_below(driver: Chrome) -> None:
    first = text(driver, "run-name")
    wanted = [mark for mark in marks(driver) if "Ω_total" in mark.get_attribute("aria-label")][-1]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", wanted)
    ActionChains(driver).click(wanted).perform()
    until(driver, lambda: text(driver, "run-name") != first)
    assert "-total" in text(driver, "run-name")
    assert 'penalty.kind = "total"' in text(driver, "run-recipe")
    assert "Ω_total" in text(driver, "run-facts")


def test_runs_in_every_state_are_listed_and_can_be_chosen(driver: Chrome) -> None:
    for state, name, reason in (
        ("failed", "cnn7-", "the loss became nan (2 of 4 epochs are done)"),
        ("damaged", "broken", "not valid TOML"),
    ):
        Select(driver.find_element(By.ID, "state")).select_by_visible_text(state)
        (row,) = driver.find_elements(By.CSS_SELECTOR, "#runs tbody tr")
        assert reason in row.text
        row.click()
        until(driver, lambda state=state: text(driver, "run-state").startswith(state))
        assert text(driver, "run-name").startswith(name)
        assert not driver.find_element(By.ID, "run-layers").is_displayed()
        assert driver.find_element(By.ID, "run-training").is_displayed() == (state == "failed")
    Select(driver.find_element(By.ID, "state")).select_by_visible_text("finished")
    driver.find_element(By.ID, "search").send_keys("balance2 s1")
    found = driver.find_elements(By.CSS_SELECTOR, "#runs tbody tr")
    assert len(found) == len(STRENGTHS) - 1
    found[0].click()
    until(driver, lambda: driver.find_element(By.ID, "run-layers").is_displayed())
    assert "-balance2-" in text(driver, "run-name")
    bars = "#layer-energy path[aria-roledescription='bar']"
    until(driver, lambda: len(driver.find_elements(By.CSS_SELECTOR, bars)) == 2 * len(synthetic.LAYERS))
    assert complaints(driver) == []


def test_sorting_the_list(driver: Chrome) -> None:
    def column() -> list[float]:
        cells = driver.find_elements(By.CSS_SELECTOR, "#runs tbody tr td:nth-child(7)")
        return [float(cell.text.strip(" %")) for cell in cells if cell.text != "–"]

    Select(driver.find_element(By.ID, "state")).select_by_visible_text("finished")
    head = driver.find_element(By.CSS_SELECTOR, "#runs th:nth-child(7) button")
    assert head.text == "accuracy"
    head.click()
    assert column() == sorted(column())
    driver.find_element(By.CSS_SELECTOR, "#runs th:nth-child(7) button").click()
    assert column() == sorted(column(), reverse=True)
    driver.find_element(By.ID, "more").click()
    assert len(column()) == PENALISED + len(SEEDS) + 3


def test_choosing_a_setting_shows_its_curves_and_scores(driver: Chrome) -> None:
    tables = driver.find_elements(By.CSS_SELECTOR, "[data-setting]")
    assert [table.is_displayed() for table in tables] == [True, False]
    Select(driver.find_element(By.ID, "setting")).select_by_index(1)
    until(driver, lambda: len(marks(driver)) == 3)
    assert [table.is_displayed() for table in tables] == [False, True]
    switches = driver.find_elements(By.CSS_SELECTOR, "fieldset .switch")
    assert [each.text for each in switches] == ["Ω_syn", "p = 1", "0"]
    assert complaints(driver) == []


def test_shares_for_spikes_that_were_fired(driver: Chrome) -> None:
    def heights() -> list[str]:
        script = "return [...document.querySelectorAll('#shares .mark-rect path')].map((bar) => bar.getAttribute('d'))"
        found: list[str] = driver.execute_script(script)
        return found

    before = heights()
    assert len(before) == 4 * len(synthetic.LAYERS)
    Select(driver.find_element(By.ID, "firing")).select_by_value("run")
    until(driver, lambda: len(heights()) == len(before) and heights() != before)


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_the_demo_s_page(chromium: browser.Browser, tmp_path: Path, size: tuple[int, int]) -> None:
    plain, frugal = (
        synthetic.write(tmp_path, recipe).result["test"]
        for recipe in synthetic.recipes(["syn"], [1], (0, 64), [0], epochs=1)
    )
    home, _ = Comparison("CNN7 on digits", ("no penalty", "Ω_syn"), (plain, frugal)).write(tmp_path / "demo")
    with chromium.opened(*size) as driver:
        driver.get(home.as_uri())
        bars = ".chart path[aria-roledescription='bar']"
        until(driver, lambda: len(driver.find_elements(By.CSS_SELECTOR, bars)) == 4 * len(synthetic.LAYERS))
        time.sleep(0.2)  # whatever a page that is drawn might still ask for
        assert complaints(driver) == []
        assert requests(driver) == [home.as_uri()]
        assert no_sideways_scroll(driver)
        assert "of the energy" in driver.find_element(By.CSS_SELECTOR, ".headline").text
