"""A penalty on spikes that have no gradient is an error where the network trains, and fine where it does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import picojoule as pj
from picojoule.errors import PicojouleError

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")


class Net(nn.Module):
    """Two spiking layers; the first block runs as `block` says, in training only."""

    def __init__(self, block: Callable[[nn.Module, Tensor], Tensor] = lambda body, x: body(x)) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), pj.Spike(0.1))
        self.middle, self.spike, self.head = nn.Linear(6, 5), pj.Spike(0.1), nn.Linear(5, 2)
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        body = self.block(self.body, x) if self.training else self.body(x)
        return self.head(self.spike(self.middle(body)))


def reentrant(body: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(body, x, use_reentrant=True)


def not_reentrant(body: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(body, x, use_reentrant=False)


def without_gradient(body: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return body(x)


def detached(body: nn.Module, x: Tensor) -> Tensor:
    return body[1](body[0](x).detach())


def made(block: Callable[[nn.Module, Tensor], Tensor]) -> tuple[Net, pj.Penalty, Tensor]:
    torch.manual_seed(0)
    net = Net(block)
    return net, pj.Penalty(pj.trace(net, torch.zeros(1, 4))), torch.randn(8, 4, requires_grad=True)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (reentrant, r"'body.1' were recorded without a gradient, .*checkpoint.*: give .* use_reentrant=False"),
        (without_gradient, r"'body.1' were recorded without a gradient, under torch.no_grad\(\) inside the network"),
        (
            detached,
            r"'body.1' were recorded without a gradient, though gradients are on .*: .*take away the detach\(\)",
        ),
    ],
)
@pytest.mark.parametrize("by_layer", [False, True])
def test_a_penalty_that_would_train_nothing_is_refused(block: Any, words: str, by_layer: bool) -> None:
    net, penalty, x = made(block)
    with pj.watch(net) as activity:
        net(x)
    with pytest.raises(PicojouleError, match=words):
        penalty.by_layer(activity) if by_layer else penalty(activity)
    with torch.no_grad():  # the remedy for those who want the value only
        assert penalty(activity) > 0
    meter = pj.EnergyMeter(penalty.synapses)
    meter.update(activity)
    assert meter.compute().synops > 0


def test_the_whole_network_in_a_reentrant_checkpoint() -> None:
    net, penalty, x = made(lambda body, x: body(x))
    with pj.watch(net) as activity:
        checkpoint(net, x, use_reentrant=True)
    with pytest.raises(PicojouleError, match="use_reentrant=False"):
        penalty(activity)


def test_a_reentrant_checkpoint_in_evaluation_mode() -> None:
    """As for weights that are trained behind batch-norm statistics that are not."""
    net, penalty, x = made(lambda body, x: body(x))
    net.eval()
    with pj.watch(net) as activity:
        checkpoint(net, x, use_reentrant=True)
    with pytest.raises(PicojouleError, match="use_reentrant=False"):
        penalty(activity)


def test_the_other_checkpoint_has_the_gradient_of_none() -> None:
    grads = []
    for block in (not_reentrant, lambda body, x: body(x)):
        net, penalty, x = made(block)
        with pj.watch(net) as activity:
            net(x)
        penalty(activity).backward()
        grads.append([p.grad for p in net.body.parameters()])
    assert all(map(torch.equal, *grads))
    assert grads[0][0].any()


def test_a_penalty_inside_the_checkpoint_has_its_gradient() -> None:
    """The block is run again in the backward pass, with its `watch` and its penalty."""
    net, penalty, x = made(lambda body, x: body(x))

    def penalised(x: Tensor) -> Tensor:
        with pj.watch(net) as activity:
            net(x)
        return penalty(activity)

    checkpoint(penalised, x, use_reentrant=True).backward()
    checked = [p.grad.clone() for p in net.body.parameters()]
    net.zero_grad()
    penalised(x).backward()
    assert all(torch.equal(mine, p.grad) for mine, p in zip(checked, net.body.parameters(), strict=True))


@pytest.mark.parametrize("block", [reentrant, without_gradient, not_reentrant])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("where", ["around the block", "inside the block"])
def test_who_wants_no_gradient_gets_the_value(block: Any, mode: Callable[[], Any], where: str) -> None:
    net, penalty, x = made(block)
    outer, inner = (mode, nullcontext) if where == "around the block" else (nullcontext, mode)
    with outer(), pj.watch(net) as activity, inner():
        net(x)
    assert penalty(activity) > 0


@pytest.mark.parametrize("block", [reentrant, without_gradient])
def test_frozen_networks_are_fine(block: Any) -> None:
    net, penalty, x = made(block)
    net.requires_grad_(False)
    with pj.watch(net) as activity:
        net(x)
    assert penalty(activity) > 0


@pytest.mark.parametrize("freeze", [lambda body: body.requires_grad_(False), lambda body: body.eval()])
def test_a_frozen_part_under_no_grad_is_fine(freeze: Callable[[nn.Module], object]) -> None:
    net, penalty, x = made(without_gradient)
    freeze(net.body)
    with pj.watch(net) as activity:
        net(x)
    penalty(activity).backward()
    assert net.middle.weight.grad.any()


def test_a_frozen_teacher_behind_its_student_is_fine() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = (nn.Sequential(nn.Linear(4, 6), pj.Spike(0.1), nn.Linear(6, 2)) for _ in "st")
            self.teacher.requires_grad_(False)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.student(x), without_gradient(self.teacher, x)

    torch.manual_seed(0)
    net = Pair()
    penalty = pj.Penalty(pj.trace(net, torch.zeros(1, 4)))
    with pj.watch(net) as activity:
        net(torch.randn(8, 4))
    penalty(activity).backward()
    assert net.student[0].weight.grad.any()


def test_first_steps_without_a_gradient_are_fine() -> None:
    """Truncated backpropagation through time, by the network itself."""

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.spike, self.head = nn.Linear(4, 6), pj.Spike(0.1), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            for step, current in enumerate(x):
                with torch.set_grad_enabled(step > 0 and torch.is_grad_enabled()):
                    out = self.head(self.spike(self.first(current)))
            return out

    torch.manual_seed(0)
    net, x = Loop(), torch.randn(3, 8, 4)
    penalty = pj.Penalty(pj.trace(net, x[:, :1], steps=3), normalized=False)
    with pj.watch(net, steps=3) as activity:
        net(x)
    penalty(activity).backward()
    truncated = net.first.weight.grad.clone()
    net.zero_grad()
    with pj.watch(net, steps=2) as activity:
        for current in x[1:]:
            net.head(net.spike(net.first(current)))
    penalty(activity).backward()
    torch.testing.assert_close(truncated, net.first.weight.grad)


def test_spikes_of_the_data_never_have_a_gradient() -> None:
    net = nn.Sequential(pj.declare_spiking(nn.Identity()), nn.Linear(4, 6), pj.Spike(0.1), nn.Linear(6, 2))
    penalty = pj.Penalty(pj.trace(net, torch.zeros(1, 4)))
    with pj.watch(net) as activity:
        net(torch.ones(2, 4))
    penalty(activity).backward()
    assert not activity["0"].requires_grad
    assert net[1].weight.grad.any()  # by the spikes of the layer behind it


def test_layers_that_cost_nothing_need_no_gradient() -> None:
    net, penalty, x = made(reentrant)
    with pj.watch(net) as activity:
        net(x)
    only_last = pj.Penalty(penalty.synapses, lambda layer: layer.fan_out if layer.name == "spike" else 0)
    only_last(activity).backward()
    assert net.middle.weight.grad.any()


class Reversed(nn.Module):
    """The neuron is registered before the weights in front of it."""

    def __init__(self) -> None:
        super().__init__()
        self.spike, self.first, self.head = pj.Spike(0.1), nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            spikes = self.spike(self.first(x))
        return self.head(spikes)


def test_the_order_in_which_modules_run_decides_not_that_of_their_names() -> None:
    net = Reversed()
    penalty = pj.Penalty(pj.trace(net, torch.zeros(1, 4)))
    with pj.watch(net) as activity:
        net(torch.randn(8, 4))
    with pytest.raises(PicojouleError, match=r"under torch.no_grad\(\) inside the network"):
        penalty(activity)
    net.first.requires_grad_(False)
    with pj.watch(net) as activity:
        net(torch.randn(8, 4))
    assert penalty(activity) > 0


class Heaviside(nn.Module):
    """A neuron without a surrogate gradient."""

    def forward(self, u: Tensor) -> Tensor:
        return (u >= 0.1).to(u.dtype)


def test_a_neuron_without_a_surrogate_gradient_cannot_be_trained_by_a_penalty() -> None:
    net = nn.Sequential(nn.Linear(4, 6), pj.declare_spiking(Heaviside()), nn.Linear(6, 2))
    penalty = pj.Penalty(pj.trace(net, torch.zeros(1, 4)))
    with pj.watch(net) as activity:
        net(torch.randn(8, 4))
    with pytest.raises(PicojouleError, match="give the neuron a surrogate gradient"):
        penalty(activity)
    with torch.no_grad():
        assert penalty(activity) > 0
