"""Transcribes the tables of the paper from its LaTeX source into the CSV files that picojoule shows beside its results.

    python scripts/transcribe.py spiking-synaptic-penalty.tex

Numbers are copied as they are printed, misprints included (`misprints.toml` beside the files says which they are).
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).resolve().parents[1] / "src" / "picojoule" / "paper" / "printed"

KINDS = {r"\Omega_{\rm syn}": "syn", r"\Omega_{\rm total}": "total", r"\Omega_{\rm balance}": "balance"}
OPTIMIZERS = {"Adam": "adam", "mSGD": "sgd"}
SURROGATES = {
    "eqn:surrogate-s3nn": "s3nn",
    "eqn:surrogate-triangle": "triangle",
    "eqn:surrogate-scaled-sigmoid": "sigmoid",
}
SCORES = {"AUC": "auc", "Spearman": "spearman", "MI": "mi"}


def main(path: str) -> None:
    tex = Path(path).read_text(encoding="utf-8")
    tables = dict(environments(tex, "table"))
    write("labels", ("label", "place"), labels(tex))
    write("totals", ("model", "energy", "syn", "total", "balance"), totals(tables))
    write("hyperparameters", HYPERPARAMETERS, hyperparameters(tables))
    write("training-time", ("penalty", "ratio"), training_time(tables))
    write("ablations", ABLATION, ablations(tables))
    write("scores", ("label", "kind", "variant", "score", "cutoff", "value"), scores(tables))
    write("architectures", ("name", "layers"), architectures(tables))


def environments(tex: str, kind: str) -> Iterator[tuple[str, str]]:
    """Every table or figure of the source with its label, in their order, which is that of their numbers."""
    for text in re.findall(rf"\\begin\{{{kind}\*?\}}(.*?)\\end\{{{kind}\*?\}}", tex, flags=re.DOTALL):
        (label,) = re.findall(r"\\label\{((?:tbl|fig):[^}]*)\}", text)
        yield label, text


def labels(tex: str) -> Iterator[list[str]]:
    for kind in ("table", "figure"):
        for number, (label, _) in enumerate(environments(tex, kind), start=1):
            yield [label, f"{kind.capitalize()} {number}"]


def body(table: str) -> list[list[str]]:
    """The cells of the rows between the rules; a rule within them is a row of no cells."""
    inner = re.search(r"\\midrule(.*)\\bottomrule", table, flags=re.DOTALL)
    assert inner is not None
    rows = []
    for line in inner[1].split("\n"):
        line = line.strip().removesuffix(r"\\").strip()
        if line:
            rows.append([] if line == r"\midrule" else [cell.strip() for cell in line.split("&")])
    return rows


def head(table: str) -> list[str]:
    line = re.search(r"\\toprule(.*?)\\midrule", table, flags=re.DOTALL)
    assert line is not None
    return [cell.strip() for cell in line[1].strip().removesuffix(r"\\").split("&")]


def totals(tables: dict[str, str]) -> Iterator[list[str]]:
    for row in body(tables["tbl:comparison-scaling-factor-metrics"]):
        yield [row[0].lower(), *row[1:]]


HYPERPARAMETERS = ("model", "optimizer", "surrogate", "lr", "weight_decay", "decay_batch_norm", "alpha", "tau")


def hyperparameters(tables: dict[str, str]) -> Iterator[list[str]]:
    for model, optimizer, surrogate, *numbers in body(tables["tbl:hyperparameter"]):
        (equation,) = re.findall(r"\\ref\{([^}]*)\}", surrogate)
        yield [
            model.lower(),
            OPTIMIZERS[optimizer],
            SURROGATES[equation],
            *("" if number == "-" else number for number in numbers),
        ]


def training_time(tables: dict[str, str]) -> Iterator[list[str]]:
    table = tables["tbl:training-time"]
    (ratios,) = body(table)
    for penalty, ratio in zip(head(table)[1:], ratios[1:], strict=True):
        yield [KINDS.get(penalty.strip("$"), penalty.lower()), ratio]


MEASURES = ("accuracy", "energy", "dead", "rate")
ABLATION = ("label", "block", "strength", "weight_decay", "decay_batch_norm")
ABLATION += tuple(name for measure in MEASURES for name in (measure, f"{measure}_deviation"))


def ablations(tables: dict[str, str]) -> Iterator[list[str]]:
    for label, table in tables.items():
        block = 1
        for row in body(table) if label.startswith("tbl:ablation") else ():
            if not row:
                block += 1
                continue
            numbers = [number for cell in row[3:] for number in cell.split(r"$\pm$")]
            yield [label, str(block), *row[:3], *(number.strip() for number in numbers)]


def scores(tables: dict[str, str]) -> Iterator[list[str]]:
    for label, table in tables.items():
        if not label.startswith("tbl:quantitative"):
            continue
        columns = [re.match(r"(\w+)\$\((\d+)\)\$", title) for title in head(table)[1:]]
        for method, *cells in body(table):
            for column, cell in zip(columns, filter(None, cells), strict=True):
                assert column is not None
                yield [label, *named(method), SCORES[column[1]], column[2], plain(cell)]


def named(method: str) -> list[str]:
    steps = re.search(r"ANN2SNN \(\$T=(\d+)\$\)", method)
    if steps is not None:
        return ["conversion", f"T = {steps[1]}"]
    kind = next(kind for text, kind in KINDS.items() if text in method)
    (power,) = re.findall(r"\(p=(\d)\)", method)
    return [kind, f"p = {power}"]


def plain(cell: str) -> str:
    """A number without its bold face or underline."""
    (number,) = re.findall(r"[\d.]+", cell)
    return str(number)


def architectures(tables: dict[str, str]) -> Iterator[list[str]]:
    table = tables["tbl:network-architecture"]
    for name in ("CNN7", "VGG11", "ResNet18"):
        (text,) = re.findall(name + r" +& \\begin\{tabular\}\{c\}(.*?)\\end\{tabular\}", table, flags=re.DOTALL)
        yield [name.lower(), layers(text)]
    for name in ("ResA", "ResB"):
        (text,) = re.findall(name + r"\(\$x\$\) consists of two paths, (.*?)(?:;|\.\})", table, flags=re.DOTALL)
        paths = [layers(path) for path in re.findall(r"\[(.*?)\]", text)]
        yield [f"{name}(x)", " + ".join([*paths, *(["identity"] if "identity" in text else [])])]


def layers(text: str) -> str:
    """C(64)k3s2p0–BN–S–…; the braces around the stages of ResNet18 are left out."""
    text = text.replace(r"(128\}", r"(128)\}")  # a parenthesis that the paper forgot to close
    text = re.sub(r"\\rm|\\[{}]|\\\\|[${}_\s]", "", text)
    text = re.sub(r"k\((\d)\)s\((\d)\)p\((\d)\)", r"k\1s\2p\3", text)
    return "–".join(filter(None, text.split("--")))


def write(name: str, columns: tuple[str, ...], rows: Iterator[list[str]]) -> None:
    with (HOME / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1])
