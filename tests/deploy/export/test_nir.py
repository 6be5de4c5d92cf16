"""NIR files, read back by `nir` and executed by a reader of the tests' own, do what the network does."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any

import nir
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

import nir_reader
import picojoule as pj
from agreement import compare, lived_in, nir_executor
from networks import CASES
from paper_networks import PAPERS
from picojoule.deploy.export import to_nir
from picojoule.deploy.export.nir.builder import checked_by_nir


def written(graph: nir.NIRGraph) -> nir.NIRGraph:
    """Through a file and back, checked by `nir` wherever its check is right."""
    file = io.BytesIO()
    nir.write(file, graph)
    return nir.read(file, type_check=all(map(checked_by_nir, graph.nodes.values())))


def check(net: nn.Module, images: Tensor) -> nir.NIRGraph:
    """The whole file agrees with the network: spikes, relays and logits."""
    graph = written(to_nir(net, images[:1]))
    found = compare(net, nir_executor(graph), images)
    assert found.wrong == 0, found
    assert found.flipped <= 1, found
    if found.different == 0:
        out = nir_reader.execute(graph, images.numpy())["output"]
        with torch.no_grad():
            np.testing.assert_allclose(out, net(images).numpy(), rtol=1e-4, atol=1e-4)
    return graph


# ------------------------------------------------------------------------------------------------------------- the zoo


@pytest.mark.slow
@pytest.mark.parametrize(("name", "samples"), [("cnn7", 100), ("vgg11", 8), ("resnet18", 10)])
def test_every_network_of_the_zoo(name: str, samples: int) -> None:
    """Layer by layer. End to end a spike that flips near the threshold spreads, far in networks that were not trained
    (the network's own arithmetic in another order does the same), so that bound is for trained ones."""
    net = pj.zoo.create(name)
    images = torch.randn(samples, *net.input_shape)
    lived_in(net, images)
    graph = written(to_nir(net, images[:1]))
    found = compare(net, nir_executor(graph), images)
    print(name, found)
    assert found.wrong == 0
    assert found.flipped <= found.near / 20
    assert set(graph.nodes) >= {layer for layer, module in net.named_modules() if isinstance(module, pj.Spike)}
    kinds = [type(node).__name__ for node in graph.nodes.values()]
    assert kinds.count("IF") == sum(isinstance(m, pj.Spike) for m in net.modules())
    assert kinds.count("Conv2d") == sum(isinstance(m, nn.Conv2d) for m in net.modules())
    # Of ResNet18's norms, those behind one convolution fold; those on the stream cannot.
    assert kinds.count("Scale") == {"cnn7": 0, "vgg11": 0, "resnet18": 12}[name]


def test_the_zoo_is_all_there() -> None:
    (marker,) = (m for m in test_every_network_of_the_zoo.pytestmark if m.name == "parametrize")
    assert {name for name, _ in marker.args[1]} == set(PAPERS)


# ------------------------------------------------------------------------------------------------------- odd networks


class Net(nn.Module):
    """A network whose forward pass is a function of it and the input."""

    def __init__(self, forward: Callable[[Any, Tensor], Any], **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self._forward = forward

    def forward(self, x: Tensor) -> Any:
        return self._forward(self, x)


def spike(threshold: float = 0.2) -> pj.Spike:
    return pj.Spike(threshold, pj.surrogate.Triangle())


def chain(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def conv(*arguments: Any, **settings: Any) -> nn.Conv2d:
    return nn.Conv2d(*arguments, **settings)


def map_head(channels: int) -> list[nn.Module]:
    return [spike(), nn.Flatten(), nn.LazyLinear(5)] if channels else []


IMAGE = (2, 8, 8)
VECTOR = (6,)
ODD: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "grouped": (lambda: chain(conv(2, 4, 3, groups=2), *map_head(4)), IMAGE),
    "oblong kernel": (lambda: chain(conv(2, 4, (3, 2), padding=(1, 0)), *map_head(4)), IMAGE),
    "dilated, strided": (lambda: chain(conv(2, 4, 3, stride=2, dilation=2, padding=2), *map_head(4)), IMAGE),
    "one-dimensional": (
        lambda: chain(
            nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), spike(), nn.Conv1d(4, 3, 2, 2), spike(), nn.Flatten()
        ),
        (2, 9),
    ),
    "negative threshold": (lambda: chain(nn.Linear(6, 5), spike(-0.3), nn.Linear(5, 4)), VECTOR),
    "no affine": (lambda: chain(nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False), spike(), nn.Linear(5, 4)), VECTOR),
    "norm of the input": (lambda: chain(nn.BatchNorm2d(2), conv(2, 3, 3, padding=1), *map_head(3)), IMAGE),
    "norm of spikes before padding": (
        lambda: chain(
            conv(2, 3, 3), spike(), nn.BatchNorm2d(3), conv(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), spike()
        ),
        IMAGE,
    ),
    "norm, then pool": (
        lambda: chain(conv(2, 3, 3), spike(), nn.BatchNorm2d(3), nn.AvgPool2d(2), *map_head(3)),
        IMAGE,
    ),
    "norm at the end": (lambda: chain(nn.Linear(6, 5), spike(), nn.Linear(5, 4), nn.BatchNorm1d(4)), VECTOR),
    "norm of flattened spikes at the end": (
        lambda: chain(conv(2, 3, 8), spike(), nn.Flatten(), nn.BatchNorm1d(3)),
        IMAGE,
    ),
    "constant at the end": (lambda: Net(lambda n, x: n.s(n.l(x)) * 2 - 1, l=nn.Linear(6, 5), s=spike()), VECTOR),
    "one layer at three places": (
        lambda: Net(lambda n, x: n.s(n.l(x) + n.l(x) * 1) + n.l(x), l=nn.Linear(6, 6), s=spike()),
        VECTOR,
    ),
    "a thing added to itself": (
        lambda: Net(lambda n, x: n.o((y := n.s(n.l(x))) + y), l=nn.Linear(6, 5), s=spike(), o=nn.Linear(5, 3)),
        VECTOR,
    ),
    "differences and factors": (
        lambda: Net(
            lambda n, x: n.s(3 - torch.sub(n.a(x) / 2, n.b(x), alpha=0.5) * -1.5 + 0.25),
            a=nn.Linear(6, 5), b=nn.Linear(6, 5), s=spike(),
        ),
        VECTOR,
    ),
    "read twice, normed once": (
        lambda: Net(
            lambda n, x: n.s2(n.norm(y := n.c(x))) + n.s1(y),
            c=conv(2, 3, 3), norm=nn.BatchNorm2d(3), s1=spike(), s2=spike(),
        ),
        IMAGE,
    ),
    "added in place": (
        lambda: Net(lambda n, x: n.s(n.a(x).add_(n.b(x))), a=nn.Linear(6, 5), b=nn.Linear(6, 5), s=spike()),
        VECTOR,
    ),
    "functional": (
        lambda: Net(
            lambda n, x: n.o(F.avg_pool2d(F.dropout(n.s(n.c(x)), 0.5, n.training), 2).view(x.size(0), -1)),
            c=conv(2, 3, 3), s=spike(), o=nn.Linear(27, 4),
        ),
        IMAGE,
    ),
    "padded pool": (lambda: chain(conv(2, 3, 3), spike(), nn.AvgPool2d(3, 2, 1), conv(3, 2, 2), *map_head(2)), IMAGE),
    "adaptive pool": (lambda: chain(conv(2, 3, 3), spike(), nn.AdaptiveAvgPool2d(3), nn.Flatten()), IMAGE),
    "means and sums": (
        lambda: Net(
            lambda n, x: n.o((y := n.s(n.c(x))).mean((2, 3), keepdim=True).squeeze((2, 3)) + y.sum((-1, -2))),
            c=conv(2, 3, 3), s=spike(), o=nn.Linear(3, 4),
        ),
        IMAGE,
    ),
    "max pool of spikes": (
        lambda: chain(conv(2, 3, 3), spike(), nn.Dropout(0.1), nn.MaxPool2d(3, 2, 1), conv(3, 2, 2), *map_head(2)),
        IMAGE,
    ),
    "one weight, two places": (
        lambda: Net(lambda n, x: n.s2(n.l(n.s1(n.l(x)))), l=nn.Linear(6, 6), s1=spike(), s2=spike()),
        VECTOR,
    ),
    "in a dictionary of modules": (
        lambda: Net(lambda n, x: n.d["s"](n.d["l"](x)), d=nn.ModuleDict({"l": nn.Linear(6, 5), "s": spike()})),
        VECTOR,
    ),
}  # fmt: skip


def one_in_three(names: Iterable[str]) -> list[Any]:
    """All of them, but two in three as slow tests, because an export takes a while."""
    return [pytest.param(name, marks=pytest.mark.slow if number % 3 else ()) for number, name in enumerate(names)]


@pytest.mark.parametrize("name", one_in_three(ODD))
def test_odd_networks(name: str) -> None:
    build, shape = ODD[name]
    net = build()
    images = torch.randn(40, *shape)
    lived_in(net, images)
    check(net, images)


@pytest.mark.parametrize("name", CASES)
def test_the_networks_of_the_other_tests(name: str) -> None:
    case = CASES[name]
    graph = check(case.build(), case.inputs(40))
    if name == "relayed":
        assert isinstance(graph.nodes["pool"], nir.IF)
        assert isinstance(graph.nodes["pool.sum"], nir.SumPool2d)


def test_pruned_weights_are_written_as_zeros() -> None:
    net = chain(conv(2, 4, 3), nn.BatchNorm2d(4), spike(), nn.Flatten(), nn.Linear(144, 3))
    prune.random_unstructured(net[0], "weight", 0.5)
    net[0].weight = torch.zeros(0)  # what a mask gives is worked out afresh
    graph = to_nir(net, torch.zeros(1, *IMAGE))
    assert np.array_equal(graph.nodes["0"].weight == 0, net[0].weight_mask.numpy() == 0)


@pytest.mark.slow
def test_spikes_at_the_threshold() -> None:
    """u = θ fires here and at v > θ' there; the next smaller float does not."""
    for threshold in (1.0, 0.1, -0.1, 0.0, 3e-39):
        net = chain(nn.Identity(), spike(threshold))
        at = np.float32(threshold)
        potentials = np.array([[at], [np.nextafter(at, np.float32(-np.inf))], [np.nextafter(at, np.float32(np.inf))]])
        out = nir_reader.execute(written(to_nir(net, torch.zeros(1, 1))), potentials)
        assert out["output"].tolist() == net(torch.from_numpy(potentials)).tolist() == [[1], [0], [1]]


def test_names_edges_and_meaning() -> None:
    net = pj.zoo.create("resnet18", in_channels=1)
    graph = to_nir(net, torch.zeros(1, 1, 32, 32))
    sources = {name: {a for a, b in graph.edges if b == name} for name in graph.nodes}
    assert sources["stage1.0.norm1"] == {"conv1"}
    assert sources["stage1.0.spike1"] == {"stage1.0.norm1"}
    assert sources["stage1.1.norm1"] == {"conv1", "stage1.0.conv2"}  # edges that meet add up
    assert sources["stage2.0.skip_norm"] == {"conv1", "stage1.0.conv2", "stage1.1.conv2"}
    assert sources["stage1.0.spike2"] == {"stage1.0.conv1"}  # its norm is folded
    assert isinstance(graph.nodes["mean"], nir.AvgPool2d)
    assert sources["output"] == {"mean.flatten"}


def test_the_model_is_left_as_it_was() -> None:
    net = chain(nn.Linear(6, 5), nn.BatchNorm1d(5), spike(), nn.Linear(5, 4)).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    to_nir(net, torch.zeros(1, 6))
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


# ------------------------------------------------------------------------------------------------------------ refusals


@pj.declare_spiking
class Heaviside(nn.Module):
    def forward(self, u: Tensor) -> Tensor:
        return (u >= 1).float()


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[str, ...]]] = {
    "relu": (lambda: chain(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), spike()), VECTOR, ("relu", "'1'")),
    "neuron": (lambda: chain(nn.Linear(6, 5), Heaviside(), nn.Linear(5, 5)), VECTOR, ("'1'", "Heaviside", "Spike")),
    "concatenation": (
        lambda: Net(lambda n, x: n.s(torch.cat([n.l(x), x], 1)), l=nn.Linear(6, 5), s=spike()),
        VECTOR,
        ("cat", "add the two branches"),
    ),
    "transposed": (lambda: chain(nn.ConvTranspose2d(2, 3, 3), *map_head(3)), IMAGE, ("conv_transpose2d", "'0'")),
    "layer norm": (lambda: chain(nn.Linear(6, 5), nn.LayerNorm(5), spike()), VECTOR, ("layer_norm", "'1'")),
    "max pool of currents": (lambda: chain(conv(2, 3, 3), nn.MaxPool2d(2), spike()), IMAGE, ("max pool", "'1'")),
    "max pool of a sum": (
        lambda: Net(
            lambda n, x: n.p(n.a(n.c(x)) + n.b(n.d(x))),
            c=conv(2, 3, 3), d=conv(2, 3, 3), a=spike(), b=spike(), p=nn.MaxPool2d(2),
        ),
        IMAGE,
        ("max pool", "'p'"),
    ),
    "ceil": (lambda: chain(conv(2, 3, 4), spike(), nn.AvgPool2d(2, ceil_mode=True)), IMAGE, ("ceil_mode", "'2'")),
    "turned": (lambda: Net(lambda n, x: n.s(n.c(x)).mT, c=conv(2, 3, 3), s=spike()), IMAGE, ("transpose",)),
    "cut": (lambda: Net(lambda n, x: n.s(n.l(x))[:, :2], l=nn.Linear(6, 5), s=spike()), VECTOR, ("slice",)),
    "unflattened": (lambda: chain(nn.Linear(6, 4), spike(), nn.Unflatten(1, (2, 2))), VECTOR, ("shape",)),
    "product": (lambda: Net(lambda n, x: n.s(n.l(x)) * x, l=nn.Linear(6, 6), s=spike()), VECTOR, ("mul",)),
    "quotient": (lambda: Net(lambda n, x: 1 / (n.s(n.l(x)) + 1), l=nn.Linear(6, 6), s=spike()), VECTOR, ("recip",)),
    "mean over channels": (
        lambda: Net(lambda n, x: n.s(n.c(x)).mean(1), c=conv(2, 3, 3), s=spike()), IMAGE, ("height and width",),
    ),
    "mean over everything": (
        lambda: Net(lambda n, x: n.s(n.l(x)) - x.mean(), l=nn.Linear(6, 6), s=spike()), VECTOR, ("mean",),
    ),
    "spikes as weights": (
        lambda: Net(lambda n, x: F.linear(n.o.weight, n.s(n.l(x))), l=nn.Linear(6, 6), s=spike(), o=nn.Linear(6, 2)),
        VECTOR,
        ("linear",),
    ),
    "mixed batch": (lambda: Net(lambda n, x: n.s(n.l(x)) - x.mean(0), l=nn.Linear(6, 6), s=spike()), VECTOR, ("mean",)),
    "linear on a map": (lambda: chain(nn.Linear(8, 8), spike()), IMAGE, ("linear", "'0'")),
    "two outputs": (lambda: Net(lambda n, x: (n.s(n.l(x)), x), l=nn.Linear(6, 6), s=spike()), VECTOR, ("one tensor",)),
    "constant on a map": (lambda: chain(conv(2, 3, 3), spike(), nn.BatchNorm2d(3)), IMAGE, ("output map",)),
    "decided by data": (
        lambda: Net(lambda n, x: n.s(n.l(x)) if x.sum() > 0 else x, l=nn.Linear(6, 6), s=spike()),
        VECTOR,
        ("torch.export", "values"),
    ),
    "no neurons": (lambda: chain(nn.Linear(6, 5)), VECTOR, ("no spiking layer",)),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in_three(REFUSED))
def test_what_nir_cannot_express_is_refused_by_name(name: str) -> None:
    build, shape, parts = REFUSED[name]
    net = build()
    lived_in(net, torch.randn(10, *shape))
    with pytest.raises(pj.PicojouleError) as refusal:
        to_nir(net, torch.zeros(1, *shape))
    for part in parts:
        assert part in str(refusal.value), str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("example", [torch.zeros(6), (torch.zeros(1, 6),), None])
def test_odd_examples_are_refused(example: Any) -> None:
    with pytest.raises(pj.PicojouleError, match="shaped like a batch"):
        to_nir(chain(nn.Linear(6, 5), spike()), example)
