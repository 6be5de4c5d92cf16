"""ψ against an independent count on random networks, and wrong rules, which that comparison must catch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from torch import Tensor

from oracle import count
from picojoule.errors import PicojouleError
from picojoule.synapses.rules import PASSING, Call
from picojoule.synapses.rules.passing import added
from picojoule.synapses.rules.synaptic import SYNAPTIC, convolution
from picojoule.synapses.trace import trace
from random_networks import FOCI, Network, networks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")]

EXAMPLES = 12


def compare(network: Network) -> None:
    expected = count(network.nodes, network.present())
    synapses = trace(network, torch.zeros(2, *network.nodes[0].shape[1:]))
    assert {f"parts.{i}" for i in expected.fan_out} == set(synapses)
    for i, fan_out in expected.fan_out.items():
        np.testing.assert_array_equal(synapses[f"parts.{i}"].fan_out.numpy(), fan_out, err_msg=f"ψ of node {i}")
    assert synapses.encoder_macs == expected.encoder_macs
    assert synapses.dense_macs == expected.dense_macs


def on_random_networks(check: Callable[[Network], None], **options: Any) -> None:
    for focus in FOCI:
        run = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), **options)
        run(given(networks(focus))(check))()


def test_random_networks_agree_with_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {name: name for name in SYNAPTIC} | {name: rule.__name__ for name, rule in PASSING.items()}
    in_networks: Counter[str] = Counter()
    fired: set[str] = set()

    def noted(label: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        def rule_that_tells(*args: Any) -> Any:
            out = rule(*args)
            if out is not NotImplemented:
                fired.add(label)
            return out

        return rule_that_tells

    for table in (SYNAPTIC, PASSING):
        for name, rule in list(table.items()):
            monkeypatch.setitem(table, name, noted(labels[name], rule))

    def compare_and_tell(network: Network) -> None:
        fired.clear()
        compare(network)
        in_networks.update([*fired, "networks"])

    on_random_networks(compare_and_tell)
    assert in_networks["networks"] >= 270
    assert {label: in_networks[label] for label in labels.values() if in_networks[label] < 10} == {}


# ---------------------------------------------------------------------------------------------------------- wrong rules


def stride_ignored(call: Call, x: Tensor, present: Tensor) -> Tensor:
    order = {"padding": (4, 0), "dilation": (5, 1), "groups": (6, 1)}
    kept = {name: call.argument(place, name, default) for name, (place, default) in order.items()}
    return convolution(Call(call.function, (), {"stride": 1, **kept}, call.psi, call.is_activation), x, present)


def border_ignored(call: Call, x: Tensor, present: Tensor) -> Tensor:
    groups = call.argument(6, "groups", 1)
    kernel = present.unflatten(0, (groups, -1)).sum(1)
    per_channel = kernel.flatten(2).sum(2).flatten()
    return per_channel.view(-1, *[1] * (present.dim() - 2))


def groups_ignored(call: Call, x: Tensor, present: Tensor) -> Tensor:
    return convolution(call, x, present) * call.argument(6, "groups", 1)


def pool_averaged(call: Call) -> Any:
    return call.run(*call.args, **call.kwargs)


def skip_dropped(call: Call) -> Any:
    kept, skip = call.argument(0, "input"), call.argument(1, "other")
    return kept + 0 * skip if call.is_activation(kept) and call.is_activation(skip) else added(call)


WRONG = {
    "stride ignored": ("conv1d conv2d conv3d", stride_ignored),
    "border ignored": ("conv1d conv2d conv3d", border_ignored),
    "groups ignored": ("conv1d conv2d conv3d", groups_ignored),
    "pool averaged": ("avg_pool1d avg_pool2d avg_pool3d", pool_averaged),
    "skip dropped": ("add", skip_dropped),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_rule_is_caught(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names, rule = WRONG[wrong]
    for name in names.split():
        monkeypatch.setitem(SYNAPTIC if name in SYNAPTIC else PASSING, name, rule)
    # By the comparison, or by the trace itself where the wrong rule makes numbers that no network can have.
    with pytest.raises((AssertionError, PicojouleError)):
        on_random_networks(
            compare, phases=[Phase.generate], database=None, derandomize=True, report_multiple_bugs=False
        )
