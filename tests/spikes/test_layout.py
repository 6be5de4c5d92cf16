"""Where time is in what a layer emits, and the advice where it is not there."""

from __future__ import annotations

import pytest
import torch

import picojoule as pj
from picojoule.spikes.layout import LayerLayout, TimeLayout


@pytest.mark.parametrize(
    ("rows", "advice"),
    [(12, "say steps=3"), (4, "say steps=1"), (3, "give it 4 samples"), (6, "give it 4 samples"), (0, "give it 4")],
)
def test_a_layer_bound_to_a_number_of_samples_gives_advice_that_works(rows: int, advice: str) -> None:
    own, emitted = LayerLayout(folded="batch", samples=4), torch.zeros(rows, 2)
    with pytest.raises(pj.PicojouleError, match=f"emitted {rows} rows, which is not steps=2: {advice}"):
        own.resolve(TimeLayout(2, folded="batch"), "spike1", [emitted])
    if advice.startswith("say"):
        layout = TimeLayout(int(advice[-1]), folded="batch")
        assert own.resolve(layout, "spike1", [emitted]) == layout
