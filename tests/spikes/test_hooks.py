"""Nothing of a `watch` block stays on copies of the model either."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

import picojoule as pj
from picojoule.errors import PicojouleError


def hooks(*models: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for model in models for m in model.modules())


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), pj.Spike(0.1), nn.Linear(6, 2))


def test_a_copy_made_inside_the_block_is_not_watched_and_keeps_no_hooks() -> None:
    net, x = network(), torch.randn(3, 4)
    with pj.watch(net) as activity:
        copied = copy.deepcopy(net)
        again = copy.deepcopy(copied)
        net(x)
        copied(x)
        again(x)
    assert activity["1"].shape == (3, 6)
    assert hooks(net, copied, again) == 0
    with pj.watch(copied) as own:
        copied(x)
    assert own.is_binary("1")
    assert torch.equal(own["1"], activity["1"])


def test_a_users_hooks_are_copied_as_ever() -> None:
    net, seen = network(), []
    net[1].register_forward_hook(lambda module, arguments, output: seen.append(module))
    with pj.watch(net):
        copied = copy.deepcopy(net)
        net(torch.zeros(1, 4))
    copied(torch.zeros(1, 4))
    assert seen == [net[1], copied[1]]
    assert hooks(copied) == 1


def test_a_copy_inside_two_blocks() -> None:
    net, x = network(), torch.zeros(1, 4)
    with pj.watch(net):
        with pj.watch(net):
            copied = copy.deepcopy(net)
            net(x)
        net[1](torch.zeros(1, 6))
    assert hooks(net, copied) == 0


def test_a_copy_made_in_a_block_that_fails() -> None:
    net, copies = network(), []

    @pj.watch(net)
    def fail() -> None:
        copies.append(copy.deepcopy(net))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert hooks(net, *copies) == 0


def test_a_model_is_not_pickled_with_hooks() -> None:
    net = network()
    with pj.watch(net):
        net(torch.zeros(1, 4))
        with pytest.raises(PicojouleError, match="save it after the `with` block"):
            pickle.dumps(net)
    assert torch.equal(pickle.loads(pickle.dumps(net))[0].weight, net[0].weight)


def test_the_block_keeps_nothing_alive() -> None:
    net = network()
    with pj.watch(net):
        copied = copy.deepcopy(net)
        net(torch.zeros(1, 4))
    gone = weakref.ref(copied)
    del copied
    gc.collect()
    assert gone() is None
