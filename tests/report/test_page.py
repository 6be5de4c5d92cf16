"""The pages in a real browser: nothing is loaded, nothing complains, pointing and switching work."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

import browser
import picojoule as pj
import synthetic
from picojoule.report import Comparison, write

pytestmark = pytest.mark.slow

STRENGTHS = (0, 1, 64, 1024)
KINDS, POWERS, SEEDS = ("syn", "total", "balance"), (1, 2), (0, 1)
PENALISED = len(KINDS) * len(POWERS) * (len(STRENGTHS) - 1) * len(SEEDS)
PHONE, LAPTOP = (390, 844), (1280, 900)
RUN_MARKS = "#tradeoff path[aria-roledescription='point'][aria-label*='; seed: ']"
MEAN_MARKS = "#tradeoff path[aria-roledescription='point'][aria-label*='mean of: ']"


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
    return driver.find_elements(By.CSS_SELECTOR, RUN_MARKS)


def labels(driver: Chrome) -> list[str]:
    """What each mark says to a screen reader: the fields of its run."""
    script = "return [...document.querySelectorAll(arguments[0])].map((mark) => mark.getAttribute('aria-label'))"
    found: list[str] = driver.execute_script(script, RUN_MARKS)
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


def test_several_seeds_are_a_mean_with_its_deviation(driver: Chrome) -> None:
    means = driver.find_elements(By.CSS_SELECTOR, MEAN_MARKS)
    assert len(means) == PENALISED // len(SEEDS)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", means[0])
    free = """return arguments[0].find((mark) => {
        const { x, y, width, height } = mark.getBoundingClientRect();
        return document.elementFromPoint(x + width / 2, y + height / 2) === mark;
    })"""  # a run may lie on it
    ActionChains(driver).move_to_element(driver.execute_script(free, means)).perform()
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible"))
    told = text(driver, "vg-tooltip-element")
    assert "2 seeds" in told
    assert told.count("±") == 2
    assert "NaN" not in told
    switch(driver, "seeds", "1")
    until(driver, lambda: not driver.find_elements(By.CSS_SELECTOR, MEAN_MARKS))  # one seed is no mean
    assert len(marks(driver)) == PENALISED // 2 + 1
    assert complaints(driver) == []


def test_the_first_screen_tells_the_main_finding(driver: Chrome) -> None:
    headline = driver.find_element(By.CSS_SELECTOR, ".headline")
    assert "% of the energy, " in headline.text
    tiles = [tile for tile in driver.find_elements(By.CSS_SELECTOR, ".tile") if tile.is_displayed()]
    assert [tile.text.splitlines()[0] for tile in tiles] == [
        *("baseline", "most accurate with a penalty", "at most 1 point lost", "at most 5 points lost"),
    ]
    assert all(tile.rect["y"] + tile.rect["height"] < LAPTOP[1] for tile in tiles)
    assert all("± " in tile.text.replace("\xa0", " ") for tile in tiles)
    tiles[0].click()
    until(driver, lambda: text(driver, "run-title").startswith("Baseline"))
    assert [tile.get_attribute("aria-pressed") for tile in tiles] == ["true", "false", "false", "false"]


def test_what_is_not_shown_is_said(driver: Chrome) -> None:
    everything = [box.get_attribute("value") for box in driver.find_elements(By.CSS_SELECTOR, "#kinds input")]
    for kind in everything:
        switch(driver, "kinds", kind)
    until(driver, lambda: len(marks(driver)) == len(SEEDS))  # the baseline
    assert text(driver, "hidden") == "All curves are switched off: switch on a penalty, a power and a seed."
    switch(driver, "kinds", everything[0])
    assert text(driver, "hidden") == ""
    options = Select(driver.find_element(By.ID, "lowest"))
    options.select_by_visible_text("from 90 %")
    below = sum(row < 0.9 for row in accuracies(driver, everything[0]))
    assert 0 < below < PENALISED // 3
    assert text(driver, "hidden").startswith(f"{below} runs of {PENALISED // 3} below the accuracy axis")
    driver.find_element(By.ID, "search").send_keys("nothing is called like this")
    assert driver.find_elements(By.CSS_SELECTOR, "#runs tbody tr") == []
    assert text(driver, "none").startswith("No run is like that")
    assert complaints(driver) == []


def accuracies(driver: Chrome, kind: str) -> list[float]:
    found = [re.search(r"accuracy: ([\d.]+)%", label) for label in labels(driver) if f"penalty: {kind};" in label]
    return [float(each[1]) / 100 for each in found if each]


def test_pointing_at_a_mark_shows_its_run(driver: Chrome) -> None:
    wanted = next(mark for mark in marks(driver) if "Ω_balance" in mark.get_attribute("aria-label"))
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", wanted)
    ActionChains(driver).move_to_element(wanted).perform()
    until(driver, lambda: driver.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible"))
    told = text(driver, "vg-tooltip-element")
    assert re.search(r"cnn7-fashion-mnist-\S+-[0-9a-f]{12}", told)  # the whole name
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
    amount, _, parts = said.rstrip(".").partition(" saved per image: ")
    assert amount.endswith("J")
    shares = {" ".join(part.split()[:-2]): float(part.split()[-2]) for part in parts.split(", ")}
    named = [name for name in shares if name in synthetic.LAYERS]
    rest = len(synthetic.LAYERS) - len(named)
    assert len(shares) == len(named) + (rest > 0)
    assert all(shares[name] >= 1 for name in named)
    assert abs(sum(shares.values()) - 100) <= len(shares) / 2
    assert [shares[name] for name in named] == sorted((shares[name] for name in named), reverse=True)


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


def test_choosing_a_mark_shows_its_run_below(driver: Chrome, page: Path) -> None:
    first = text(driver, "run-name")
    wanted = [mark for mark in marks(driver) if "Ω_total" in mark.get_attribute("aria-label")][-1]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", wanted)
    ActionChains(driver).click(wanted).perform()
    until(driver, lambda: text(driver, "run-name") != first)
    assert "-total" in text(driver, "run-name")
    shown_recipe = driver.execute_script("return document.getElementById('run-recipe').textContent")
    (stored,) = page.parent.parent.glob(f"{text(driver, 'run-name')}/recipe.toml")
    assert pj.Recipe.loads(shown_recipe) == pj.Recipe.load(stored)
    assert "Ω_total" in text(driver, "run-facts")
    assert "Ω_total" in text(driver, "pointer-name")
    driver.find_element(By.ID, "to-run").click()
    until(driver, lambda: driver.execute_script("return document.activeElement.id") == "one-run-title")


def test_runs_in_every_state_are_listed_and_can_be_chosen(driver: Chrome) -> None:
    for state, name, reason in (
        ("failed", "cnn7-", "the loss became nan (2 of 4 epochs are done)"),
        ("damaged", "broken", "not valid TOML"),
    ):
        Select(driver.find_element(By.ID, "state")).select_by_visible_text(state)
        (row,) = driver.find_elements(By.CSS_SELECTOR, "#runs tbody tr")
        assert reason in row.text
        row.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        until(driver, lambda state=state: text(driver, "run-state").startswith(state))
        assert text(driver, "run-name").startswith(name)
        assert not driver.find_element(By.ID, "run-layers").is_displayed()
        assert driver.find_element(By.ID, "run-training").is_displayed() == (state == "failed")
        assert "measured when it is finished" in text(driver, "run-blank")
        assert ("accuracy so far" in text(driver, "run-facts")) == (state == "failed")
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
        cells = driver.find_elements(By.CSS_SELECTOR, "#runs tbody tr td:nth-child(5)")
        return [float(cell.text.strip(" %")) for cell in cells if cell.text != "–"]

    Select(driver.find_element(By.ID, "state")).select_by_visible_text("finished")
    head = driver.find_element(By.CSS_SELECTOR, "#runs th:nth-child(5) button")
    assert head.text == "accuracy"
    head.click()
    assert column() == sorted(column())
    driver.find_element(By.CSS_SELECTOR, "#runs th:nth-child(5) button").click()
    assert column() == sorted(column(), reverse=True)
    (sorted_by,) = driver.find_elements(By.CSS_SELECTOR, "#runs th[aria-sort]")
    assert (sorted_by.text, sorted_by.get_attribute("aria-sort")) == ("accuracy ↓", "descending")
    driver.find_element(By.ID, "more").click()
    assert len(column()) == PENALISED + len(SEEDS) + 3


def test_choosing_a_setting_shows_its_curves_and_scores(driver: Chrome) -> None:
    tables = driver.find_elements(By.CSS_SELECTOR, "[data-setting]")
    assert [table.is_displayed() for table in tables] == [True, False, True, False]  # findings, then scores
    Select(driver.find_element(By.ID, "setting")).select_by_index(1)
    until(driver, lambda: len(marks(driver)) == 3)
    assert [table.is_displayed() for table in tables] == [False, True, False, True]
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


@pytest.mark.parametrize("left", ["a baseline", "one run", "an unfinished run"])
def test_a_page_with_little_in_it_says_what_is_missing(chromium: browser.Browser, tmp_path: Path, left: str) -> None:
    strength = 0 if left == "a baseline" else 8
    (recipe,) = synthetic.recipes(["syn"], [1], [strength], [0], epochs=4)
    synthetic.write(tmp_path, recipe, finished=left != "an unfinished run")
    with chromium.opened(*PHONE) as driver:
        shown(driver, write(tmp_path, drawn=0).page)
        assert not driver.find_element(By.ID, "curves").is_displayed()
        note = "Only the baseline is here so far" if left == "a baseline" else "energy has no baseline"
        assert note in text(driver, "setting-note")
        assert ("2 of 4 epochs are done" in text(driver, "run-state")) == (left == "an unfinished run")
        legends = driver.find_elements(By.CSS_SELECTOR, "#layer-energy .role-legend, #training-energy .role-legend")
        assert legends == []  # one thing needs none
        assert complaints(driver) == []
        assert no_sideways_scroll(driver)


def test_on_paper_the_chart_has_its_legend_and_dark_ink(driver: Chrome) -> None:
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    until(driver, lambda: is_light_text(driver))
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    try:
        assert not is_dark(driver)
        assert not is_light_text(driver)
        assert driver.find_element(By.ID, "kinds").is_displayed()
        assert not driver.find_element(By.ID, "search").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_the_demo_s_page(chromium: browser.Browser, tmp_path: Path, size: tuple[int, int]) -> None:
    plain, frugal = (
        synthetic.write(tmp_path, recipe).result.test
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
