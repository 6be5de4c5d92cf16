"""Some cases of each kind, always the same; `make fuzz` runs thousands of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fuzz.cases import Case
from fuzz.measuring import measured
from fuzz.networks import Spec

TOGETHER = 10
"""Cases per test, which is what a failing one is told by: their numbers and commands are in the message."""
SEEDS = {"networks": 120, "recipes": 100, "commands": 60, "files": 60}
PARTS = [
    pytest.param(kind, range(start, start + TOGETHER), id=f"{kind}-{start}")
    for kind, count in SEEDS.items()
    for start in range(1, count + 1, TOGETHER)
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seeds"), PARTS)
def test_every_promise_is_kept(kind: str, seeds: range) -> None:
    failed = []
    for seed in seeds:
        case = Case(kind, seed)
        failed += [
            f"{name}: {details} ({case.described}); again: {case.command}" for name, details in case.run().failures
        ]
    assert failed == []


ROUNDED = Spec(
    seed=20265041,
    spatial=1,
    neuron="spike",
    steps=1,
    how="once",
    dtype="float32",
    batch=2,
    blocks=(("synapse", 880639), ("quantized_weights", 563103), ("masked", 696786), ("checkpointed", 195074)),
    end=("masked", 836233),
    changes=(("another_threshold", 54571),),
)
TRAINED_ONCE = Spec(
    seed=20269748,
    spatial=2,
    neuron="spike",
    steps=1,
    how="once",
    dtype="float32",
    batch=5,
    blocks=(
        ("synapse", 356793),
        ("quantized_weights", 276553),
        ("synapse", 140790),
        ("synapse", 21378),
        ("gradient_scaling_by_a_tensor", 536130),
    ),
    end=("linear", 547908),
    changes=(("pruned", 229027),),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "note"),
    [
        pytest.param(ROUNDED, "penalised", id="its gradient is off by rounding alone"),
        pytest.param(TRAINED_ONCE, "no network: it can be trained once only", id="it can be trained once only"),
    ],
)
def test_what_is_the_networks_own_is_no_failure(spec: Spec, note: str) -> None:
    outcome = measured(spec, exports=[])
    assert (outcome.failures, note in outcome.notes) == ([], True)
