"""Training of neurons that integrate over time steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.runs.model import build_model, count_synapses


def over_time(*overrides: str) -> pj.Recipe:
    return tiny.recipe("model.name=tiny:over_time", "data.limit=1000", "training.epochs=5", *overrides)


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    recipe = over_time("neuron.kind=lif", "neuron.steps=4", "penalty.strength=0")
    return pj.fit(recipe, tmp_path_factory.mktemp("over_time"))


@pytest.mark.slow
def test_a_leaky_network_learns_over_four_steps(leaky: pj.Run) -> None:
    result = leaky.result.test
    assert result.accuracy > 0.8
    assert result.steps == 4
    assert pj.evaluate(leaky).to_dict() == result.to_dict()


@pytest.mark.slow
def test_its_energy_is_the_sum_over_the_steps(leaky: pj.Run) -> None:
    """Layer by layer and step by step, with the neuron's equation written out."""
    result, model = leaky.result.test, pj.load_model(leaky)
    data = pj.data.load("digits", limit=1000)
    images = torch.cat([batch for batch, _ in pj.data.Batches(data.test, 64, data.normalization)])
    layers = dict(model.named_children())
    v1, v2, operations, psi = 0, 0, torch.zeros(2), tiny.fan_out_of_first_layer()
    with torch.no_grad():
        for _ in range(4):
            u1 = 0.5 * v1 + layers["norm1"](layers["conv1"](images))
            s1 = (u1 >= 1).float()
            u2 = 0.5 * v2 + layers["norm2"](layers["conv2"](s1))
            s2 = (u2 >= 1).float()
            v1, v2 = u1 - s1, u2 - s2
            operations += torch.stack([(s1 * psi).sum(), s2.sum() * 10])
    assert [layer.synops for layer in result.layers] == pytest.approx((operations / len(images)).tolist(), rel=1e-3)
    assert result.joules == pytest.approx(result.synops * 0.9e-12)
    assert result.encoder_macs == 4 * 7 * 7 * 25 * 4


@pytest.mark.slow
def test_the_penalty_saves_energy_over_time(leaky: pj.Run) -> None:
    saving = pj.fit(over_time("neuron.kind=lif", "neuron.steps=4", "penalty.strength=8"), leaky.path.parent)
    assert saving.result.test.synops < 0.5 * leaky.result.test.synops
    assert saving.result.test.accuracy > 0.6


@pytest.mark.parametrize("kind", ["qrelu", "if", "lif"])
def test_every_kind_of_neuron_trains_in_one_step_in_any_model(kind: str, tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe(f"neuron.kind={kind}"), tmp_path)
    assert run.result.test.steps == 1
    assert run.metrics[-1].train_loss < run.metrics[0].train_loss
    assert pj.evaluate(run).to_dict() == run.result.test.to_dict()


def test_a_model_that_does_not_take_steps_is_refused_over_time(tmp_path: Path) -> None:
    with pytest.raises(pj.PicojouleError, match="tiny:net does not take steps"):
        pj.fit(tiny.recipe("neuron.kind=if", "neuron.steps=2"), tmp_path)


@pytest.mark.parametrize("kind", ["if", "lif"])
def test_a_zoo_network_of_a_recipe_runs_over_its_steps(kind: str) -> None:
    recipe = tiny.recipe("model.name=cnn7", f"neuron.kind={kind}", "neuron.steps=3")
    model = build_model(recipe)
    synapses = count_synapses(model, recipe)
    assert synapses is not None
    with pj.watch(model, steps=3) as activity:
        logits = model(torch.randn(2, *recipe.input_shape))
    assert logits.shape == (2, 10)
    (logits.square().mean() + pj.Penalty(synapses)(activity)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.get_submodule("conv1").weight.grad.abs().sum() > 0
