"""A whole report: files of every form, a page that needs no other, and nothing in it that could run."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import vl_convert
from PIL import Image

import picojoule as pj
import synthetic
from command_line import Command
from picojoule.io.tables import Estimate
from picojoule.paper.published import scores
from picojoule.report import Curve, Point, Report, figures, gather, rows, run_groups, write
from picojoule.report.finding import finding
from picojoule.report.write import showcase

STRENGTHS = (0, 1, 64, 1024)
NASTY = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("runs")
    synthetic.fill(into, synthetic.recipes(strengths=STRENGTHS, seeds=(0, 1), epochs=3))
    unfinished, failed = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[8], seeds=(0, 1), epochs=4)
    synthetic.write(into, unfinished, finished=False)
    synthetic.write(into, failed, finished=False).write_failure(NASTY)
    (into / "broken").mkdir()
    (into / "broken" / "recipe.toml").write_text("seed = [")
    return into


@pytest.fixture(scope="module")
def report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return write(folder, tmp_path_factory.mktemp("out") / "report")


@pytest.mark.slow
def test_every_chart_is_a_picture_in_three_forms(report: Report) -> None:
    names = {path.stem for path in report.files if path.parent.name == "figures"}
    assert names == {
        f"{name}-cnn7-fashion-mnist-epochs-{epochs}"
        for name, epochs in [
            *((name, 3) for name in ("tradeoff", "penalty", "layers", "penalty-measured", "training")),
            *((name, 4) for name in ("penalty", "training")),
        ]
    }
    for name in names:
        path = report.page.parent / "figures" / name
        with Image.open(f"{path}.png") as image:
            image.load()
            assert len(image.convert("RGB").getcolors(2**24) or ()) > 10
        assert ElementTree.parse(f"{path}.svg").getroot().tag.endswith("svg")
        assert Path(f"{path}.pdf").read_bytes().startswith(b"%PDF")


def test_every_table_is_csv_and_latex(report: Report, folder: Path) -> None:
    tables = {path.name: path for path in report.files if path.parent.name == "tables"}
    names = ("scores", "tradeoff", "runs", "equal-energy", "differences")
    assert tables.keys() == {f"{name}.{form}" for name in names for form in ("csv", "tex")}
    with tables["runs.csv"].open(encoding="utf-8", newline="") as file:
        listed = {row["run"]: row for row in csv.DictReader(file)}
    assert set(listed) == {path.parent.name for path in folder.glob("*/recipe.toml")}
    assert [row["state"] for row in listed.values()].count("finished") == 38
    for path in folder.glob("*/result.json"):
        test = json.loads(path.read_text())["test"]
        assert float(listed[path.parent.name]["accuracy [%]"]) == pytest.approx(100 * test["accuracy"])
        assert float(listed[path.parent.name]["energy [µJ]"]) == pytest.approx(1e6 * test["joules"])
        everything, total = listed[path.parent.name]["everything [µJ]"], test.get("total_joules")
        assert everything == "not defined" if total is None else float(everything) == pytest.approx(1e6 * total)
    for path in tables.values():
        if path.suffix == ".tex":
            body = [line for line in path.read_text(encoding="utf-8").splitlines() if line.endswith(r"\\")]
            assert len(body) > 6
            assert len({len(re.findall(r"(?<!\\)&", line)) for line in body}) == 1


def parts(page: Path) -> tuple[str, dict[str, str], list[str]]:
    """The markup without scripts, the blocks of data by name, and the scripts."""
    text = page.read_text(encoding="utf-8")
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, flags=re.DOTALL)
    data = {re.findall(r'id="(\w+)"', head)[0]: body for head, body in scripts if "application/json" in head}
    markup = re.sub(r"<script\b[^>]*>.*?</script>", "", text, flags=re.DOTALL)
    return markup, data, [body for head, body in scripts if not head.strip()]


def test_the_page_is_one_file_with_one_library(report: Report) -> None:
    markup, data, scripts = parts(report.page)
    assert len(scripts) == 2
    assert sum("window.vegaEmbed=" in script.replace(" = ", "=") for script in scripts) == 1
    assert not re.search(r"<[a-zA-Z][^>]*\b(src|href)\s*=", markup)
    assert not re.search(r"@import|url\(", markup)
    assert "default-src 'none'" in markup
    assert markup.count("<html") == markup.count("<body") == 1
    assert set(data) == {"charts", "store", "details"}
    for name in json.loads(data["charts"]):
        assert f'id="{name}"' in markup


def test_the_page_holds_every_run_once(report: Report, folder: Path) -> None:
    _, data, _ = parts(report.page)
    store = json.loads(data["store"])
    listed = [dict(zip(store["columns"], run, strict=True)) for run in store["runs"]]
    details = [json.loads(line) for line in data["details"].splitlines()]
    assert len(listed) == len(details) == len(report.collection) == 41
    for run, detail in zip(listed, details, strict=True):
        path = folder / run["name"]
        if run["state"] == "damaged":
            assert (run["setting"], detail["layers"]) == (None, None)
            continue
        setting = store["settings"][run["setting"]]
        text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in (setting["recipe"] | detail["free"]).items())
        ordered = sorted(text.splitlines(), key=lambda line: "." in line.partition("=")[0])
        assert pj.Recipe.loads("\n".join(ordered)) == pj.Recipe.load(path / "recipe.toml")
        assert len(detail["training"]["epoch"]) == len(pj.Run(path).metrics)
        if run["state"] == "finished":
            test = json.loads((path / "result.json").read_text())["test"]
            assert run["accuracy"] == pytest.approx(test["accuracy"], rel=1e-4)
            assert detail["layers"]["joules"] == pytest.approx([x["joules"] for x in test["layers"]], rel=1e-4)
            assert [name for name, _ in store["layers"][run["layers"]]] == [x["name"] for x in test["layers"]]


def test_what_runs_say_cannot_run(report: Report) -> None:
    text = report.page.read_text(encoding="utf-8")
    assert NASTY not in text
    assert "<img src=x" not in text
    _, data, _ = parts(report.page)
    store = json.loads(data["store"])
    assert sum(NASTY in reason for reason in (run[store["columns"].index("reason")] for run in store["runs"])) == 1


@pytest.mark.slow
def test_a_report_again_is_the_same_report(report: Report, folder: Path, tmp_path: Path) -> None:
    again = write(folder, tmp_path / "again", drawn=0)
    assert again.page.read_bytes() == report.page.read_bytes()
    assert not (tmp_path / "again" / "figures").exists()


def test_the_run_shown_first_is_a_typical_one_of_the_headline(folder: Path, tmp_path: Path) -> None:
    setting = run_groups(gather(folder))[0]
    main = finding(setting)
    assert main is not None
    level = main.within[0]
    assert level is not None
    chosen = showcase(setting, main)
    assert chosen is not None
    assert chosen.test is not None
    assert chosen.name in {point.run for point in level.points}
    distances = [abs(point.accuracy - level.accuracy.mean) for point in level.points]
    assert abs(chosen.test.accuracy - level.accuracy.mean) == pytest.approx(min(distances))
    runs = synthetic.fill(tmp_path, synthetic.recipes(["syn"], [1], (8, 512), [0], epochs=1))  # without a baseline
    (alone,) = run_groups(gather(tmp_path))
    best = showcase(alone, finding(alone))
    assert best is not None
    assert best.name == max(runs, key=lambda run: run.result.test.accuracy).path.name


def marks(node: Any) -> list[dict[str, Any]]:
    """Every item of a drawing that is a datum's mark, with the kind of its mark."""
    if isinstance(node, list):
        return [mark for value in node for mark in marks(value)]
    if not isinstance(node, dict):
        return []
    own = node.get("items", []) if "marktype" in node and node.get("role") == "mark" else []
    return [{**item, "marktype": node["marktype"]} for item in own] + marks(list(node.values()))


def drawn(chart: Any) -> list[dict[str, Any]]:
    return marks(vl_convert.vegalite_to_scenegraph(chart.to_json()))


def count(chart: Any, kind: str) -> int:
    return sum(mark["marktype"] == kind for mark in drawn(chart))


@pytest.mark.slow
def test_the_trade_off_figure_shows_every_run_and_a_line_a_curve(folder: Path) -> None:
    found = run_groups(gather(folder))[0].curves
    points = rows.curve_rows(found)
    levels = 6 * 3
    assert len(points) == 2 + levels * 2
    chart = figures.tradeoff(points, ["Ω_syn", "Ω_total", "Ω_balance"], ["p = 1", "p = 2"])
    assert count(chart, "symbol") == len(points) + levels  # and the means
    assert count(chart, "rule") == 1 + 2 * levels  # the baseline, and deviations both ways
    assert count(chart, "rect") == 1
    fewer = figures.tradeoff(points, ["Ω_syn"], ["p = 1"], seeds=["1"])  # one seed has no deviation
    assert [count(fewer, kind) for kind in ("symbol", "rule", "rect")] == [1 + 3, 1, 0]


def test_means_and_sample_deviations_are_drawn_where_they_are() -> None:
    energies, accuracies, plain = (0.30, 0.36, 0.35), (0.74, 0.80, 0.75), (0.86, 0.88, 0.90)
    points = [
        *(
            Point(energy, accuracy, 8.0, rank=8, seed=i, run=f"run {i}")
            for i, (energy, accuracy) in enumerate(zip(energies, accuracies, strict=True))
        ),
        Point(0.5, 0.85, 2.0, rank=2, seed=0, run="alone"),
    ]
    baseline = [Point(1.0, accuracy, seed=i, run=f"plain {i}") for i, accuracy in enumerate(plain)]
    table = rows.curve_rows([Curve("Ω_syn", "p = 1", tuple(points), tuple(baseline))])
    chart = figures.tradeoff(table, ["Ω_syn"], ["p = 1"], width=600, height=400)
    low, high, far = figures.extent(table)

    def x(energy: float) -> float:
        return 600 * (energy + 0.015 * far) / (1.015 * far)

    def y(accuracy: float) -> float:
        return 400 * (high - accuracy) / (high - low)

    across, upright = sorted(
        (m for m in drawn(chart) if m["marktype"] == "rule" and m.get("opacity", 1) < 1), key=lambda m: m["x"]
    )
    energy, accuracy = Estimate.of(energies), Estimate.of(accuracies)
    assert energy.deviation is not None
    assert accuracy.deviation is not None
    assert (across["x"], across["x2"]) == pytest.approx(
        (x(energy.mean - energy.deviation), x(energy.mean + energy.deviation))
    )
    assert upright["x"] == pytest.approx(x(energy.mean))
    ends = sorted((upright["y"], upright["y2"]))
    assert ends == pytest.approx([y(accuracy.mean + accuracy.deviation), y(accuracy.mean - accuracy.deviation)])
    symbols = [mark for mark in drawn(chart) if mark["marktype"] == "symbol"]
    sizes = {(round(mark["x"]), round(mark["y"])): mark["size"] for mark in symbols}
    large = sizes[round(x(energy.mean)), round(y(accuracy.mean))]
    assert len(symbols) == 3 + 1 + 3 + 1
    assert all(sizes[round(x(e)), round(y(a))] < large / 2 for e, a in zip(energies, accuracies, strict=True))
    (band,) = (mark for mark in drawn(chart) if mark["marktype"] == "rect")
    spread = np.std(plain, ddof=1)
    assert (band["y"], band["y"] + band["height"]) == pytest.approx((y(0.88 + spread), y(0.88 - spread)))


def test_no_mark_is_cut_off_by_the_frame() -> None:
    points = [Point(0.0, 0.1, 512, rank=512, run="silent"), Point(1.3, 0.9, 1, rank=1, run="costly")]
    table = rows.curve_rows([Curve("Ω_syn", "p = 1", tuple(points))])
    chart = figures.tradeoff(table, ["Ω_syn"], ["p = 1"], width=600, height=400)
    for mark in drawn(chart):
        if mark["marktype"] == "symbol":
            radius = mark["size"] ** 0.5 / 2
            assert radius < mark["x"] < 600 - radius
            assert radius < mark["y"] < 400 - radius


def test_epochs_are_whole_numbers() -> None:
    table = [{"epoch": epoch, "series": "training", "value": 1 / epoch} for epoch in (1, 2, 3)]
    svg = vl_convert.vegalite_to_svg(figures.training(table, "loss").to_json())
    axis = svg[svg.index("X-axis") :]
    assert re.findall(r">([\d.]+)</text>", axis[: axis.index("Y-axis")]) == ["1", "2", "3"]


def test_bars_by_layer(folder: Path) -> None:
    entry = next(entry for entry in gather(folder) if entry.test is not None)
    assert entry.test is not None
    table = rows.layer_rows("a", entry.test.layers) + rows.layer_rows("b", rows.mean_layers([entry, entry]))
    assert [row["energy"] for row in table[:6]] == pytest.approx([row["energy"] for row in table[6:]])
    for chart in (figures.energy_by_layer(table, "ab"), figures.rate_by_layer(table, "ab")):
        assert count(chart, "rect") == 12


def test_the_command(command: Command, tmp_path: Path) -> None:
    synthetic.fill(tmp_path, synthetic.recipes(kinds=["syn"], powers=[1], seeds=[0], epochs=1))
    status, out, err = command("report", str(tmp_path), "--json")
    assert (status, err) == (0, "")
    content = json.loads(out)
    assert content["page"] == str(tmp_path / "report" / "report.html")
    assert all(Path(path).is_file() for path in [content["page"], *content["files"]])
    assert content["runs"] == {"finished": 5, "unfinished": 0, "failed": 0, "damaged": 0}
    (curve,) = content["settings"][0]["curves"]
    assert (curve["label"], curve["points"]) == ("Ω_syn (p = 1)", 4)
    assert 0 < curve["AUC(70)"] < 1
    status, out, err = command("report", str(tmp_path), "--out", str(tmp_path / "elsewhere"))
    assert out.splitlines()[-1] == str(tmp_path / "elsewhere" / "report.html")
    assert "Ω_syn" in out
    assert "AUC(70)" in out
    assert "kNN" not in out  # with all scores the table would be wider than a terminal; the page has them
    assert err == "5 finished\n"


@pytest.mark.slow
def test_the_command_tells_what_becomes_of_the_claims(command: Command, tmp_path: Path) -> None:
    kinds, strengths = ["syn", "total"], (0, 8, 64)
    synthetic.fill(tmp_path, synthetic.recipes(kinds=kinds, powers=[1], strengths=strengths, seeds=[0], epochs=1))
    status, out, _ = command("report", str(tmp_path))
    assert status == 0
    assert "accuracy at equal energy" in " ".join(out.split())
    (row,) = [line for line in out.splitlines() if "Ω_syn − Ω_total, p = 1" in line]
    assert "cannot be told" in row  # by one seed


def test_the_command_refuses_a_folder_without_runs(command: Command, tmp_path: Path) -> None:
    status, out, err = command("report", str(tmp_path))
    assert (status, out) == (2, "")
    assert err.startswith(f"picojoule: {tmp_path} holds no run folders: name one that")


@pytest.mark.slow
def test_networks_of_one_name_that_differ_do_not_stop_a_report(tmp_path: Path) -> None:
    """The code behind a name may change between two runs."""
    baseline, penalised = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[0, 8], seeds=[0], epochs=1)
    synthetic.write(tmp_path, baseline, layers={"spike1": 100, "spike2": 50})
    synthetic.write(tmp_path, baseline.override("seed=1"), layers={"spike1": 100})
    synthetic.write(tmp_path, penalised, layers={"first": 100})
    written = write(tmp_path)
    assert written.page.is_file()
    assert written.collection.counts["finished"] == 3


@pytest.mark.slow
def test_pictures_of_settings_with_long_names_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for module in ("a", "b"):
        factory = f"model.name={module}.{'x' * 90}:net"
        synthetic.fill(tmp_path, synthetic.recipes(strengths=[0], seeds=[0], epochs=1, overrides=[factory]))
        name = f"model.name={'y' * 90}.{module}:net"
        synthetic.fill(tmp_path, synthetic.recipes(strengths=[0], seeds=[0], epochs=1, overrides=[name]))
    files = [path for path in write(tmp_path).files if path.parent.name == "figures"]
    assert len({path.name for path in files}) == len(files) == 4 * 3 * 3


def test_a_place_that_cannot_be_written_is_one_sentence(command: Command, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    synthetic.fill(runs, synthetic.recipes(kinds=["syn"], powers=[1], strengths=[0], seeds=[0], epochs=1))
    (tmp_path / "file").touch()
    status, out, err = command("report", str(runs), "--out", str(tmp_path / "file"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"the folder {tmp_path / 'file'} cannot be made" in err


@pytest.mark.slow
def test_the_paper_s_scores_stand_beside_those_of_its_settings(command: Command, tmp_path: Path) -> None:
    for overrides in ([], ["optimizer.name=sgd"], ["neuron.kind=lif"]):
        recipes = synthetic.recipes(kinds=["syn"], powers=[1], seeds=[0], epochs=1, overrides=overrides)
        synthetic.fill(tmp_path, recipes)
    assert command("report", str(tmp_path))[0] == 0
    with (tmp_path / "report" / "tables" / "scores.csv").open(encoding="utf-8", newline="") as file:
        beside = [row["AUC(70) paper [%]"] for row in csv.DictReader(file)]
    tables = (f"tbl:quantitative-comparison-fmnist-cnn6-{optimizer}" for optimizer in ("adam", "msgd"))
    printed = [f"{100 * scores(table)['Ω_syn (p = 1)']['AUC(70)']:g}" for table in tables]
    assert sorted(beside) == sorted([*printed, ""])  # the paper has no leaky neurons


@pytest.mark.slow
def test_names_that_are_no_text_and_figures_beyond_all_measure(tmp_path: Path) -> None:
    """One such run is shown as what it is, and spoils nothing of the others."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    recipes = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[0, 8], seeds=(0, 1), epochs=3)
    runs = [synthetic.write(folder, recipe) for recipe in recipes]
    damaged = json.loads((runs[0].path / "result.json").read_text())
    damaged["test"]["joules"] = 5e-324
    (runs[0].path / "result.json").write_text(json.dumps(damaged))
    odd = json.loads((runs[2].path / "result.json").read_text())
    odd["test"]["layers"][0]["name"] = "\ud800"
    (runs[2].path / "result.json").write_text(json.dumps(odd))
    os.rename(runs[3].path, os.fsencode(folder) + b"/run \xfe")
    report = write(folder, tmp_path / "out", drawn=1)
    assert report.collection.counts == {"finished": 3, "unfinished": 0, "failed": 0, "damaged": 1}
    text = report.page.read_text(encoding="utf-8")
    for name in (r"picojoule · \udcff", r"run \\udcfe", r"\\ud800"):  # twice the backslash within JSON
        assert name in text
    json.dumps(report.to_dict(), allow_nan=False)
