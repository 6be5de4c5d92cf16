"""A few hundred cases of each kind, always the same; `make fuzz` runs thousands of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fuzz.cases import Case

TOGETHER = 10
"""Cases per test, which is what a failing one is told by: their numbers and commands are in the message."""
SEEDS = {"networks": 150, "recipes": 200, "commands": 60, "files": 60}
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


@pytest.mark.slow
def test_a_gradient_that_is_off_by_rounding_alone_is_no_failure() -> None:
    outcome = Case("networks", 20265041).run()
    assert (outcome.failures, "penalised" in outcome.notes) == ([], True)


@pytest.mark.slow
def test_a_network_that_can_be_trained_once_only_is_no_failure() -> None:
    outcome = Case("networks", 20269748).run()
    assert (outcome.failures, "no network: it can be trained once only" in outcome.notes) == ([], True)
