"""Time folded into the batch, and the two ends of a network."""

from __future__ import annotations

import pytest
import torch

import picojoule as pj
from picojoule.neurons.time_steps import present, readout, unfold


def test_every_step_gets_the_image_or_its_share_of_it() -> None:
    images = torch.rand(3, 2, 4, 4).contiguous(memory_format=torch.channels_last)
    whole, shared = present(images, 5), present(images, 5, shared=True)
    assert whole.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(unfold(whole, 5), images.expand(5, -1, -1, -1, -1))
    torch.testing.assert_close(unfold(shared, 5).sum(0), images)


def test_the_outputs_are_averaged_or_summed_over_the_steps() -> None:
    outputs = torch.rand(15, 10)
    by_hand = [[sum(outputs[t * 3 + b, c].item() for t in range(5)) for c in range(10)] for b in range(3)]
    torch.testing.assert_close(readout(outputs, 5, summed=True), torch.tensor(by_hand))
    torch.testing.assert_close(readout(outputs, 5), torch.tensor(by_hand) / 5)


def test_one_step_leaves_everything_as_it_is() -> None:
    x = torch.rand(3, 2)
    assert present(x, 1) is present(x, 1, shared=True) is readout(x, 1) is readout(x, 1, summed=True) is x


def test_rows_that_do_not_divide_are_refused() -> None:
    with pytest.raises(pj.PicojouleError, match="7 rows do not divide into 2 time steps"):
        readout(torch.zeros(7, 2), 2)
