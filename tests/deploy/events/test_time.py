"""Networks over several time steps do as events what they do in PyTorch, spike by spike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import picojoule as pj
from against_pytorch import agree, lively, metered
from paper_networks import PAPERS
from picojoule.deploy import events
from picojoule.deploy.events import program
from picojoule.neurons.time_steps import present, readout

Neuron = Callable[[], nn.Module]


def whole(net: nn.Module) -> nn.Module:
    """With weights that are few eighths, so that sums are exact in any order and potentials hit the threshold."""
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.weight.copy_(torch.randint(-3, 5, module.weight.shape) / 8)
                if module.bias is not None:
                    module.bias.copy_(torch.randint(-1, 3, module.bias.shape) / 8)
            if isinstance(module, nn.BatchNorm2d):
                module.eps = 0.0
                for tensor, values in ((module.weight, (-2.0, 0.5, 1.0, 2.0)), (module.bias, (-0.5, 0.0, 0.25, 0.5))):
                    tensor.copy_(torch.tensor(values)[torch.randint(4, tensor.shape)])
    return net.eval()


class Drawn(nn.Module):
    """A network drawn at random: convolutions with norms, pools and residual sums, then a linear layer."""

    def __init__(self, steps: int, neuron: Neuron, width: int, blocks: list[str], summed: bool) -> None:
        super().__init__()
        self.steps, self.blocks, self.summed = steps, blocks, summed
        self.stem, self.first = nn.Conv2d(2, width, 3, padding=1), neuron()
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in blocks)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) if "norm" in block else nn.Identity() for block in blocks)
        pools = {"average": partial(nn.AvgPool2d, 3, 1, 1, divisor_override=8), "max": partial(nn.MaxPool2d, 3, 1, 1)}
        self.pools = nn.ModuleList(
            next((pools[name]() for name in pools if name in block), nn.Identity()) for block in blocks
        )
        self.neurons = nn.ModuleList(neuron() for _ in blocks)
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        current = self.stem(present(x, self.steps))
        spikes = self.first(current)
        for block, conv, norm, pool, neuron in zip(
            self.blocks, self.convs, self.norms, self.pools, self.neurons, strict=True
        ):
            new = norm(conv(spikes))
            emitted = neuron(new + current if "currents" in block else new)
            spikes = pool(emitted + spikes if "spikes" in block else emitted)
            current = new
        return readout(self.head(spikes.mean((2, 3))), self.steps, summed=self.summed)


@st.composite
def neurons(draw: st.DrawFn, steps: int) -> Neuron:
    settings = {
        "threshold": draw(st.sampled_from([0.5, 1.0, 2.0])),
        "reset": draw(st.sampled_from(["subtract", "zero"])),
        "max_spikes": draw(st.sampled_from([None, 1, 2])),
        "floor": draw(st.sampled_from([None, -1.0, -0.25, 0.0])),
        "steps": steps,
    }
    if draw(st.booleans()):
        return partial(pj.IF, **settings)
    return partial(pj.LIF, leak=draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])), **settings)


@st.composite
def networks(draw: st.DrawFn) -> Drawn:
    steps = draw(st.integers(1, 5))
    words = st.sampled_from(
        ["", "norm", "currents", "spikes", "norm currents", "norm spikes", "average", "norm average"]
    )
    blocks = draw(st.lists(words, min_size=1, max_size=3))
    neuron = draw(neurons(steps))
    if draw(st.booleans()):
        blocks = [f"{block} max" if "average" not in block and "spikes" not in block else block for block in blocks]
    return Drawn(steps, neuron, draw(st.sampled_from([3, 20, 70])), blocks, draw(st.booleans()))


@settings(max_examples=10)
@given(networks(), st.sampled_from((1, 3, 19)), st.booleans(), st.integers(0, 10**6))
def test_random_networks_over_time(net: Drawn, images: int, short_lists: bool, seed: int) -> None:
    """Every spike, count and answer, as whole numbers of eighths leave nothing to rounding.

    More images than go through a layer together, and lists that hold one window at a time, change nothing.
    """
    torch.manual_seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        if short_lists:
            patch.setattr(program, "LONGEST_LIST", 1)
        agree(whole(net), torch.randint(-2, 6, (images, 2, 5, 4)) / 4, flipped=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize(
    "neuron", [pj.IF, partial(pj.LIF, leak=0.3, reset="zero"), partial(pj.LIF, max_spikes=3)], ids=["if", "zero", "lif"]
)
def test_zoo(name: str, neuron: Neuron) -> None:
    # Where a potential lies on the threshold to its last bit, one spike differs, and ten layers make many of it.
    torch.manual_seed(1 if name == "vgg11" else 0)
    net = lively(pj.zoo.create(name, neuron=neuron, steps=3))
    engine = agree(net, torch.rand(3, *net.input_shape), flipped=1e-3)
    assert engine.steps == 3


def quantised() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        pj.QuantizedReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(54, 20),
        nn.BatchNorm1d(20),
        pj.QuantizedReLU(),
        nn.Linear(20, 4),
    )


@pytest.mark.parametrize("steps", [1, 4])
def test_a_converted_network(steps: int) -> None:
    net = pj.convert(lively(quantised()), steps=steps)
    engine = agree(net, torch.rand(5, 1, 8, 8), flipped=1e-3)
    assert (engine(torch.rand(5, 1, 8, 8)).synops > 0).all()


class Own(nn.Module):
    """A network of one's own, with time as an axis, in one of the ways to write it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.conv, self.norm, self.spike = nn.Conv2d(1, 5, 3, stride=2), nn.BatchNorm2d(5), pj.LIF(0.5)
        self.hidden, self.spike2, self.head = nn.Linear(45, 12), pj.LIF(0.5, leak=0.25), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "stack":
            steps = torch.stack([x] * 4)
        elif self.form == "cat":
            steps = torch.cat([x, x, x, x]).unflatten(0, (4, x.shape[0]))
        elif self.form == "expand":
            steps = x.unsqueeze(0).expand(4, -1, -1, -1, -1)
        else:
            steps = x.repeat(4, 1, 1, 1).view(4, -1, 1, 8, 8)
        current = self.norm(self.conv(steps.flatten(0, 1)))
        s = self.spike(current.unflatten(0, (4, x.shape[0])))
        s = self.spike2(self.hidden(s.flatten(2)))
        out = self.head(s)
        return out.sum(0) if self.form == "stack" else out.mean(dim=0)


@pytest.mark.parametrize("form", ["stack", "cat", "expand", "repeat"])
def test_time_as_an_axis(form: str) -> None:
    torch.manual_seed(0)
    engine = agree(lively(Own(form)), torch.rand(6, 1, 8, 8), steps=4)
    assert all((count > 0).any() for count in engine(torch.rand(6, 1, 8, 8)).spikes.values())


def small(neuron: Neuron, steps: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return lively(Drawn(steps, neuron, 70, ["norm", "norm average"], summed=False))


@pytest.mark.parametrize("most", [1, 3, None])
def test_bytes_over_time_count_what_they_do(most: int | None) -> None:
    net, x = small(partial(pj.IF, 0.5, max_spikes=most, steps=3)), torch.rand(6, 2, 8, 8)
    engine = events.compile(net, x, weights="int8")
    result, own = engine(x), engine.watch(x)
    assert result.synops.tolist() == metered(engine.synapses, own)
    assert (result.logits.argmax(1) == net(x).argmax(1)).float().mean() > 0.5


def test_an_image_does_not_see_those_beside_it() -> None:
    """Whether alone, in a batch, or shared by two threads: the same bits."""
    net, x = small(partial(pj.LIF, 0.4, steps=3)), torch.rand(19, 2, 8, 8)
    one, two = events.compile(net, x), events.compile(net, x, threads=2)
    together, shared = one(x), two(x)
    assert torch.equal(together.logits, shared.logits)
    assert torch.equal(together.synops, shared.synops)
    for i in (18, 0, 7):
        alone = one(x[i : i + 1])
        assert torch.equal(alone.logits[0], together.logits[i])
        assert alone.synops[0] == together.synops[i]


class AnswersOverTime(Drawn):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(self.stem(present(x, self.steps))).mean((2, 3))).unflatten(0, (self.steps, -1))


REFUSED: dict[str, tuple[Callable[[], nn.Module], int | None, str]] = {
    "unknown steps": (lambda: Own("stack"), None, "do not know how many time steps that is: say steps=T"),
    "other steps": (lambda: small(partial(pj.IF, steps=3)), 2, "different numbers of time steps"),
    "no number": (lambda: small(partial(pj.IF, steps=3)), 0, "steps=0"),
    "answers over time": (
        lambda: AnswersOverTime(3, partial(pj.IF, steps=3), 3, [], False).eval(),
        None,
        r"output: let it return the mean over its time steps, \[batch, …\], or use the dense engine",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_unclear_about_time_is_refused(what: str) -> None:
    build, steps, message = REFUSED[what]
    net = build()
    with pytest.raises(pj.PicojouleError, match=message):
        events.compile(net, torch.zeros(1, 1 if isinstance(net, Own) else 2, 8, 8), steps=steps)
