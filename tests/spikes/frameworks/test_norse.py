"""Networks of Norse: cells called once a step, layers over [T, B, …], and cells lifted over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from frameworks import BATCH, STEPS, Form, check_example, check_form, classes_of, need, pixels, run_example
from picojoule.errors import PicojouleError
from picojoule.spikes.frameworks import NORSE, Refused, Silent, kind_of

norse = need("norse.torch")
from norse.torch.functional.lif import LIFParameters, lif_feed_forward_step  # noqa: E402
from norse.torch.module.encode import PoissonEncoder, SignedPoissonEncoder  # noqa: E402
from norse.torch.module.lif_mc import LIFMCRecurrentCell  # noqa: E402
from norse.torch.module.sequential import RecurrentSequential  # noqa: E402

TIMED = {"steps": STEPS, "time_axis": 0}
QUICK = LIFParameters(tau_syn_inv=torch.tensor(500.0), tau_mem_inv=torch.tensor(500.0), v_th=torch.tensor(0.1))


def identity(module: nn.Module) -> nn.Module:
    return module


def network(neuron: Callable[[], nn.Module], last: nn.Module, over_time: Callable[[nn.Module], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return norse.SequentialState(  # type: ignore[no-any-return]
        over_time(nn.Conv2d(1, 4, 3, padding=1)),
        neuron(),
        over_time(nn.MaxPool2d(2)),
        over_time(nn.Conv2d(4, 8, 3)),
        neuron(),
        nn.Flatten(-3),
        nn.Linear(32, 10),
        last,
    ).eval()


class Lifted(nn.Module):
    """The cells over [T, B, …]: each is called once a step, inside the one call of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(norse.Lift(part) for part in cells())

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        for part in self.parts:
            x = part(x)
            x = x[0] if isinstance(x, tuple) else x
        return x, None


def cells() -> nn.Module:
    return network(lambda: norse.LIFCell(QUICK), norse.LICell(), identity)


def called(net: nn.Module) -> Tensor:
    out, state = [], None
    for step in pixels():
        y, state = net(step, state)
        out.append(y)
    return torch.stack(out)


def at_once(net: nn.Module) -> Tensor:
    out: Tensor = net(pixels())[0]
    return out


def forms() -> dict[str, Form]:
    one, all_steps = pixels()[0, :1], pixels()[:, :1]
    layers = network(lambda: norse.LIF(QUICK), norse.LI(), norse.Lift)
    return {
        "cells": Form(cells(), one, called, {}, {"steps": STEPS}),
        "layers": Form(layers, all_steps, at_once, {"steps": STEPS}, TIMED, encoder="0.lifted_module"),
        "lifted cells": Form(Lifted().eval(), all_steps, at_once, TIMED, TIMED, encoder="parts.0.lifted_module"),
    }


def test_all_forms_give_the_same_bill() -> None:
    bills = {name: check_form(form, lambda net: None) for name, form in forms().items()}
    assert all(bill == bills["cells"] for bill in bills.values())


def test_the_state_reaches_the_network_unchanged() -> None:
    net = network(norse.LIFBoxCell, norse.LICell(), identity)
    out, state = net(pixels()[0])
    with pj.watch(net) as activity:
        watched, watched_state = net(pixels()[0])
    assert torch.equal(out, watched)
    assert [type(s) for s in watched_state] == [type(s) for s in state]
    assert set(activity) == {"1", "2", "4"}


@pytest.mark.parametrize("said", [{"steps": STEPS, "time_axis": 1}, {"folded": "time"}])
def test_a_layer_over_time_has_it_first_and_nowhere_else(said: dict[str, int]) -> None:
    net = norse.SequentialState(nn.Linear(4, 3), norse.LIF(), nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match=r"'1' emits its spikes as \[T, B, …\], not as .*: leave out time_axis"):
        pj.trace(net, torch.zeros(STEPS, 1, 4), **said)


def test_the_number_of_steps_must_be_said() -> None:
    net = norse.SequentialState(nn.Linear(4, 3), norse.LIF(), nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match="whose axis 0 is not steps=1: check steps"):
        pj.trace(net, torch.zeros(STEPS, 1, 4))


def test_an_encoder_fires_and_makes_the_time_axis() -> None:
    net = norse.SequentialState(PoissonEncoder(STEPS), nn.Linear(4, 3), norse.LIF(), nn.Linear(3, 2))
    synapses = pj.trace(net, torch.zeros(1, 4), **TIMED)
    assert synapses["0"].fan_out.tolist() == [3, 3, 3, 3]
    assert (synapses.encoder_macs, synapses.dense_macs, synapses.input_shape) == (0, 18, (4,))


# -------------------------------------------------------------------------------------------------------- other neurons


def test_every_name_in_the_table_is_a_class_of_the_framework() -> None:
    need("norse.torch.module.exp_filter")
    assert set(NORSE.kinds) <= set(classes_of("norse"))


FIRING = [
    "LIFCell",
    "LIFBoxCell",
    "LIFExCell",
    "LIFAdExCell",
    "LIFRefracCell",
    "LIFAdExRefracCell",
    "LSNNCell",
    "IAFCell",
]


@pytest.mark.parametrize("name", FIRING)
def test_cells_that_fire(name: str) -> None:
    net = norse.SequentialState(nn.Linear(4, 3), getattr(norse, name)(), nn.Linear(3, 2))
    assert pj.trace(net, torch.zeros(2, 4))["1"].fan_out.tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", ["LIF", "LIFEx", "LIFAdEx", "LSNN"])
def test_layers_that_fire(name: str) -> None:
    net = norse.SequentialState(nn.Linear(4, 3), getattr(norse, name)(), nn.Linear(3, 2))
    assert pj.trace(net, torch.zeros(STEPS, 1, 4), **TIMED)["1"].fan_out.tolist() == [2, 2, 2]


def test_an_encoder_with_negative_spikes() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(SignedPoissonEncoder(STEPS, f_max=1000), nn.Linear(4, 3))
    synapses = pj.trace(net, torch.zeros(1, 4), steps=STEPS)
    with pj.watch(net, steps=STEPS) as activity:
        net(torch.linspace(-1, 1, 4)[None])
    assert pj.Penalty(synapses, normalized=False)(activity).item() == 3 * activity["0"].sum().item() > 0


class Stepwise(nn.Module):
    """Events, a recurrent cell with its state given and returned, and weights."""

    def __init__(self, cell: nn.Module, loops: bool) -> None:
        super().__init__()
        self.events, self.cell, self.head, self.loops = pj.declare_spiking(nn.Identity()), cell, nn.Linear(5, 2), loops

    def forward(self, x: Tensor, state: Any = None) -> Any:
        outputs = []
        for frame in x if self.loops else [x]:
            spikes, state = self.cell(self.events(frame), state)
            outputs.append(self.head(spikes))
        return torch.stack(outputs), state


EAGER = LIFParameters(tau_syn_inv=torch.tensor(500.0), tau_mem_inv=torch.tensor(500.0), v_th=torch.tensor(0.05))
CELLS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "LIF": (lambda: norse.LIFRecurrentCell(4, 5, p=EAGER), 4),
    "LIF with autapses": (lambda: norse.LIFRecurrentCell(4, 5, p=EAGER, autapses=True), 5),
    "LSNN": (lambda: norse.LSNNRecurrentCell(4, 5), 4),
    "LIFEx": (lambda: norse.LIFExRecurrentCell(4, 5), 4),
    "LIFRefrac": (lambda: norse.LIFRefracRecurrentCell(4, 5), 4),
    "LIFAdEx": (lambda: norse.LIFAdExRecurrentCell(4, 5), 4),
    "over time": (lambda: norse.LIFRecurrent(4, 5, p=EAGER), 4),
}


@pytest.mark.parametrize("loops", [True, False], ids=["steps in forward", "a step a call"])
@pytest.mark.parametrize("name", CELLS)
def test_recurrent_cells_weigh_what_arrives_and_their_own_last_spikes(name: str, loops: bool) -> None:
    torch.manual_seed(0)
    build, back = CELLS[name]
    x = (torch.rand(STEPS, BATCH, 4) > 0.4).float()
    if name == "over time":
        net: nn.Module = norse.SequentialState(pj.declare_spiking(nn.Identity()), build(), nn.Linear(5, 2))
        events, cell, options, loops = "0", "1", TIMED, True
    else:
        net, events, cell, options = Stepwise(build(), loops), "events", "cell", {"steps": STEPS}
    synapses = pj.trace(net, x[:, :1] if loops else x[0], **(options if loops else {}))
    with pj.watch(net, **options) as activity:
        state = None
        for frame in [x] if loops else x:
            _, state = net(frame, state)
    spikes = activity[cell]
    assert spikes[:-1].any() or "LIF" not in name.split()
    bill = pj.Penalty(synapses, normalized=False)(activity).item() * BATCH
    assert bill == pytest.approx((5 * x.sum() + 2 * spikes.sum() + back * spikes[:-1].sum()).item())
    assert synapses.synapses == 4 * 5 + 5 * (2 + back)
    assert synapses.dense_macs == synapses.synapses
    assert [target.name for target in synapses[events].targets] == [f"{cell}.input"]
    assert f"{cell}.recurrent" in {target.name for target in synapses[cell].targets}


REFUSED: list[Callable[[], nn.Module]] = [
    lambda: LIFMCRecurrentCell(3, 3),
    lambda: norse.LILinearCell(3, 3),
    lambda: RecurrentSequential(nn.Linear(3, 3), norse.LIFCell()),
]


@pytest.mark.parametrize("build", REFUSED)
def test_what_cannot_be_counted_is_refused_by_name(build: Callable[[], nn.Module]) -> None:
    module = build()
    assert isinstance(kind_of(module), Refused)
    with pytest.raises(PicojouleError, match=f"'1' \\({type(module).__name__} of Norse\\)"):
        pj.trace(norse.SequentialState(nn.Linear(4, 3), module), torch.zeros(1, 4))


@pytest.mark.parametrize("name", ["LICell", "LIBoxCell"])
def test_what_emits_no_spikes_must_not_feed_a_synapse(name: str) -> None:
    module = getattr(norse, name)()
    assert kind_of(module) == Silent()
    net = norse.SequentialState(nn.Linear(4, 3), norse.LIFCell(), nn.Linear(3, 3), module, nn.Linear(3, 2))
    with pytest.raises(PicojouleError, match=f"'3' \\({name} of Norse\\), which emits its potential"):
        pj.trace(net, torch.zeros(1, 4), strict=True)


def test_a_neuron_called_as_a_function_is_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.lif = nn.Linear(4, 3), norse.LIFCell()
            self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            z, state = self.lif(self.first(x))
            z, _ = lif_feed_forward_step(self.second(z), state, QUICK)
            return self.third(z)  # type: ignore[no-any-return]

    with pytest.raises(PicojouleError, match=r"'third' is fed by .* declare"):
        pj.trace(Bare(), torch.zeros(2, 4))


@pytest.mark.slow
def test_the_example() -> None:
    check_example(run_example("norse_digits.py"), steps=6)
