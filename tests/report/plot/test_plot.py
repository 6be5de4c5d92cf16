"""The pictures of a watched network show what was recorded, add up to the bill, and refuse what they cannot show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj


def net() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), pj.Spike(0.2), nn.Conv2d(4, 6, 3), pj.Spike(0.1)),
        *(nn.Flatten(), nn.Linear(96, 8), pj.Spike(0.05), nn.Linear(8, 3)),
    )


@pytest.fixture
def watched() -> tuple[nn.Sequential, pj.Activity, Tensor]:
    network, images = net(), torch.randn(5, 1, 8, 8)
    with torch.no_grad(), pj.watch(network) as activity:
        network(images)
    return network, activity, images


def rows(chart: Any) -> list[list[dict[str, Any]]]:
    """The rows of every data set of a chart."""
    return list(chart.to_dict()["datasets"].values())


def test_a_raster_has_a_point_for_each_spike(watched: tuple[nn.Sequential, pj.Activity, Tensor]) -> None:
    _, activity, _ = watched
    (points,) = rows(pj.plot.raster(activity, ["6"]))
    assert len(points) == int(activity["6"].sum())
    assert {(point["at"], point["neuron"]) for point in points} == {
        tuple(at) for at in activity["6"].nonzero().tolist()
    }


def test_a_raster_over_time_shows_one_sample() -> None:
    network = nn.Sequential(nn.Linear(3, 7), pj.LIF(steps=4), nn.Linear(7, 2))
    with torch.no_grad(), pj.watch(network, steps=4) as activity:
        network(torch.randn(8, 3) + 1)
    (points,) = rows(pj.plot.raster(activity, sample=1))
    expected = activity["1"][:, 1].nonzero().tolist()  # [T, N]
    assert {(point["at"], point["neuron"]) for point in points} == {tuple(at) for at in expected}


def test_the_maps_of_a_layer_add_up_to_its_line_in_the_bill(watched: tuple[nn.Sequential, pj.Activity, Tensor]) -> None:
    network, activity, images = watched
    synapses = pj.trace(network, images[:1])
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    bill = {layer["name"]: layer["joules"] for layer in meter.compute().to_dict()["layers"]}
    for name in ("1", "3"):
        (places,) = rows(pj.plot.energy_maps(activity, synapses, [name]))
        assert sum(place["value"] for place in places) * 1e-12 == pytest.approx(bill[name], rel=1e-6)


def test_energy_maps_leave_out_layers_without_maps(watched: tuple[nn.Sequential, pj.Activity, Tensor]) -> None:
    network, activity, images = watched
    drawn = pj.plot.energy_maps(activity, pj.trace(network, images[:1]))
    assert [chart["title"]["text"] for chart in drawn.to_dict()["concat"]] == ["1 (6 × 6)", "3 (4 × 4)"]


def test_a_map_of_nothing_has_the_colour_of_nothing() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), pj.Spike(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    images = torch.randn(5, 1, 8, 8)
    synapses = pj.trace(network, images[:1])
    with torch.no_grad(), pj.watch(network) as activity:
        network(images)
    charts = pj.plot.energy_maps(activity, synapses).to_dict()["concat"]
    assert not synapses["1"].synapses, "its spikes reach synapses through the pool alone"
    scales = {chart["title"]["text"].partition(" ")[0]: chart["encoding"]["color"]["scale"] for chart in charts}
    assert (scales["1"]["domainMin"], scales["1"]["domainMax"]) == (0, 1)
    assert "domainMax" not in scales["2"]


def test_a_pool_of_currents_is_no_layer_and_one_of_spikes_has_energy_but_no_rate() -> None:
    network = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), pj.Spike(0.2), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1), pj.Spike(0.1)),
        *(nn.Flatten(), nn.Linear(2, 3)),
    )
    images = torch.randn(5, 1, 8, 8)
    with torch.no_grad(), pj.watch(network) as activity:
        network(images)
    assert activity.relays == {"1", "3"}
    assert [row["layer"] for row in rows(pj.plot.rates(activity))[0]] == ["2", "5"]
    assert len(pj.plot.raster(activity).vconcat) == len(pj.plot.rate_maps(activity).to_dict()["concat"]) == 2
    drawn = pj.plot.energy_maps(activity, pj.trace(network, images[:1])).to_dict()["concat"]
    assert [chart["title"]["text"].partition(" ")[0] for chart in drawn] == ["2", "3", "5"]


def test_the_rate_at_a_place_is_the_mean_over_channels_and_samples(
    watched: tuple[nn.Sequential, pj.Activity, Tensor],
) -> None:
    _, activity, _ = watched
    (places,) = rows(pj.plot.rate_maps(activity, ["3"]))
    found = torch.tensor([place["value"] for place in places]).view(4, 4)
    assert torch.allclose(found, activity["3"].mean((0, 1)), atol=1e-6)
    (places,) = rows(pj.plot.rate_maps(activity, ["3"], sample=2))
    assert torch.allclose(
        torch.tensor([place["value"] for place in places]).view(4, 4), activity["3"][2].mean(0), atol=1e-6
    )


def test_rates_and_dead_neurons_are_those_of_the_spikes(watched: tuple[nn.Sequential, pj.Activity, Tensor]) -> None:
    _, activity, _ = watched
    found = {row["layer"]: row for row in rows(pj.plot.rates(activity))[0]}
    for name in activity:
        assert found[name]["rate"] == pytest.approx(float(activity[name].mean()), abs=1e-6)
        assert found[name]["dead"] == pytest.approx(float((activity[name].sum(0) == 0).float().mean()), abs=1e-6)


def test_potentials_are_what_enters_the_neurons_and_nothing_stays_on_the_model() -> None:
    network, images = net(), torch.randn(3, 1, 8, 8)
    with torch.no_grad(), pj.plot.watch_potentials(network) as found:
        network(images)
    assert torch.allclose(found.values["1"], network[0](images).detach().flatten())
    assert found.thresholds == {"1": 0.2, "3": 0.1, "6": 0.05}
    assert not any(module._forward_pre_hooks for module in network.modules())
    assert "fire" in str(pj.plot.potentials(found, "3").to_dict())


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda a, s: pj.plot.raster(a, ["spike9"]), "spike9"),
        (lambda a, s: pj.plot.raster(a, neurons=0), "neurons=0"),
        (lambda a, s: pj.plot.raster({}), "a raster"),
        (lambda a, s: pj.plot.raster(a, []), "needs a layer"),
        (lambda a, s: pj.plot.rate_maps(a, ["6"]), "no feature maps"),
        (lambda a, s: pj.plot.rate_maps(a, sample=5), "sample=5"),
        (lambda a, s: pj.plot.energy_maps(a, None), "NoneType"),
        (lambda a, s: pj.plot.potentials(pj.plot.Potentials()), "no potentials"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(
    watched: tuple[nn.Sequential, pj.Activity, Tensor], draw: Any, says: str
) -> None:
    network, activity, images = watched
    with pytest.raises(pj.PicojouleError, match=says):
        draw(activity, pj.trace(network, images[:1]))


def test_neurons_that_keep_their_potential_are_named() -> None:
    network = nn.Sequential(nn.Linear(3, 7), pj.LIF(steps=2), nn.Linear(7, 2))
    with pytest.raises(pj.PicojouleError, match="keep theirs to themselves"), pj.plot.watch_potentials(network):
        pass
