"""Shares of energy and penalties by layer, against the penalties themselves."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.report import gather
from picojoule.report.shares import share_rows, synapses_of, terms_at_one, terms_measured


@pytest.mark.parametrize("name", ["cnn7", "resnet18"])
def test_the_terms_add_up_to_the_penalties_at_one(name: str) -> None:
    data = {"cnn7": "fashion-mnist", "resnet18": "cifar-10"}[name]
    recipe = pj.Recipe.loads(f'model.name = "{name}"\ndata.name = "{data}"', "energy.psi=uniform")
    synapses = synapses_of(recipe)
    assert synapses is not None
    terms = terms_at_one(synapses)
    totals = (synapses.synapses, synapses.neurons, len(synapses.spiking))
    assert tuple(round(sum(terms[term])) for term in ("Ω_syn", "Ω_total", "Ω_balance")) == totals
    assert sum(terms["energy"]) == pytest.approx(0.9e-12 * totals[0])
    rows = share_rows(synapses, terms)
    shares = {(row["layer"], row["term"]): row["share"] for row in rows}
    assert len(shares) == 4 * len(synapses)
    for layer in synapses:
        assert shares[layer, "energy"] == pytest.approx(shares[layer, "Ω_syn"])
        assert shares[layer, "Ω_balance"] == pytest.approx(1 / totals[2])


def test_a_report_imports_no_code_that_a_run_names() -> None:
    assert synapses_of(tiny.recipe("model.name=tiny:net")) is None
    assert synapses_of(tiny.recipe("model.name=absent.module:factory")) is None


def test_measured_shares_are_those_of_the_penalties(tmp_path: Path) -> None:
    """With a relay, which only Ω_syn sees."""
    run = pj.fit(tiny.recipe("model.name=tiny:pooled", "penalty.strength=0"), tmp_path)
    (entry,) = gather(tmp_path)
    assert entry.test is not None
    names = [layer.name for layer in entry.test.layers]
    rows = share_rows(names, terms_measured(entry.test.layers))
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["term"], {})[row["layer"]] = row["share"]

    data = pj.data.load("digits", limit=200)
    model = pj.load_model(run)
    synapses = pj.trace(copy.deepcopy(model), torch.zeros(1, 1, 32, 32))
    normalization = data.normalization
    batches = pj.data.Batches(data.test, len(data.test), normalization)
    with torch.no_grad(), pj.watch(model) as activity:
        for images, _ in batches:
            model(images.contiguous(memory_format=torch.channels_last))
    for kind in ("syn", "total", "balance"):
        by_layer = pj.Penalty(synapses, kind, normalized=False).by_layer(activity)
        total = sum(value.item() for value in by_layer.values())
        assert found[f"Ω_{kind}"] == pytest.approx({k: v.item() / total for k, v in by_layer.items()}, rel=1e-4)
    assert found["energy"] == pytest.approx(found["Ω_syn"])
