"""A traced model comes back exactly as it was, whether tracing succeeds or fails."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike
from picojoule.spikes.spiking import declare_spiking
from picojoule.spikes.watch import watch
from picojoule.synapses.snapshot import unchanged
from picojoule.synapses.trace import trace


class Restless(nn.Module):
    """A forward pass that changes everything it can reach."""

    def __init__(self, end: Callable[[Tensor], Tensor] = torch.clone) -> None:
        super().__init__()
        self.conv, self.bn, self.spike, self.drop = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), Spike(), nn.Dropout(0.5)
        self.head = prune.random_unstructured(nn.Linear(32, 3), "weight", 0.5)
        self.register_buffer("total", torch.zeros(2, 4, 4))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("swapped", torch.zeros(3))
        self.register_buffer("reset", torch.arange(3.0))
        self.end = end
        self.calls = 0
        self.membrane: Any = None
        self.log: list[Any] = ["before"]
        self.states: dict[str, Any] = {"v": [torch.ones(2)], "n": {"m": 1}}
        self.recent: deque[int] = deque([1, 2], maxlen=2)
        self.seen = {1}

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        current = self.bn(self.conv(x))
        self.membrane = current if self.membrane is None else self.membrane * 0.5 + current
        spikes = self.drop(self.spike(self.membrane)) * (1 + 0 * torch.rand(()))
        self.total += spikes[0]
        self.mean.data.add_(1)
        self.swapped.data = torch.ones(3)
        self.reset = torch.zeros(3)
        self.log.append(spikes)
        self.states["v"][0].zero_()
        self.states["n"]["m"] = 2
        self.recent.append(3)
        self.seen.add(2)
        self.conv.bias.requires_grad_(False)
        self.conv.weight.grad = None
        self.new_attribute = spikes
        self.end(x)
        return self.head(spikes.flatten(1))


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that can be compared, and which objects it consists of."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    modules = dict(model.named_modules())
    return {
        "values": {name: t.detach().clone() for name, t in tensors.items()},
        "identities": {name: id(t) for name, t in tensors.items()},
        "memory": {name: t.data_ptr() for name, t in tensors.items()},
        "autograd": {name: (t.requires_grad, t.is_leaf, id(t.grad), t.dtype) for name, t in tensors.items()},
        "gradients": {name: None if t.grad is None else t.grad.clone() for name, t in tensors.items()},
        "modes": {name: m.training for name, m in modules.items()},
        "attributes": {name: {k: id(v) for k, v in vars(m).items()} for name, m in modules.items()},
        "hooks": {name: (list(m._forward_hooks), list(m._forward_pre_hooks)) for name, m in modules.items()},
        "containers": [(repr(v)) for k, v in vars(model).items() if k in ("calls", "log", "states", "recent", "seen")],
        "rng": torch.get_rng_state(),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def fails(x: Tensor) -> Tensor:
    raise RuntimeError("on purpose")


ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "success": torch.clone,
    "exception": fails,
    "refusal": lambda x: torch.einsum("bchw->b", x),
}


@pytest.mark.parametrize("end", ENDS)
def test_everything_is_as_before(end: str) -> None:
    net = Restless(ENDS[end])
    net.bn.eval()
    net.drop.training = False
    net.conv.register_forward_hook(lambda module, args, output: None)
    net.conv.weight.grad = torch.ones_like(net.conv.weight)
    before = fingerprint(net)
    if end == "success":
        assert trace(net, torch.zeros(1, 1, 6, 6))["spike"].neurons == 32
    else:
        with pytest.raises(PicojouleError, match=r"on purpose|einsum"):
            trace(net, torch.zeros(1, 1, 6, 6))
    after = fingerprint(net)
    assert [key for key in before if not same(before[key], after[key])] == []
    assert not hasattr(net, "new_attribute")


def test_a_pending_backward_pass_is_not_disturbed() -> None:
    net, undisturbed = (torch.manual_seed(1) and Restless() for _ in range(2))
    x = torch.rand(2, 1, 6, 6)

    def loss(model: Restless) -> Tensor:
        logits = model.head(model.spike(model.bn(model.conv(x)) + 1).flatten(1))
        model.membrane = model.bn(model.conv(x))  # a state with a graph
        return F.cross_entropy(logits, torch.tensor([0, 1])) + model.membrane.square().sum()

    pending = loss(net)
    membrane = net.membrane
    trace(net, torch.zeros(2, 1, 6, 6))
    assert net.membrane is membrane
    assert membrane.grad_fn is not None
    pending.backward()
    loss(undisturbed).backward()
    for (name, p), q in zip(net.named_parameters(), undisturbed.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad), name


def test_a_state_with_a_graph_that_is_written_in_place() -> None:
    class Leaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v: Any = 0.0

        def forward(self, u: Tensor) -> Tensor:
            if isinstance(self.v, Tensor):
                self.v *= 0.5
                self.v += u
            else:
                self.v = u
            return (self.v > 0).float()

    net = nn.Sequential(nn.Linear(3, 3), declare_spiking(Leaky()), nn.Linear(3, 2))
    net(torch.rand(1, 3))
    v, history = net[1].v, net[1].v.grad_fn
    value = v.detach().clone()
    assert trace(net, torch.zeros(1, 3))["1"].synapses == 6
    assert net[1].v is v
    assert v.grad_fn is history
    assert torch.equal(v, value)


def test_the_example_is_not_changed() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spike = Spike()

        def forward(self, x: Tensor) -> Tensor:
            x -= 1
            return self.spike(x)

    for example in (torch.full((2, 3), 5.0), torch.full((2, 3), 5)):
        trace(Centred(), example)
        assert (example == 5).all()


def test_inference_tensors_and_shared_tensors() -> None:
    with torch.inference_mode():
        net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), Spike(), nn.Linear(3, 3))
    net[3].weight = net[0].weight
    before = {name: t.clone() for name, t in net.state_dict().items()}
    assert trace(net, torch.zeros(2, 3))["2"].synapses == 9
    assert net[3].weight is net[0].weight
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())


def test_unchanged_alone() -> None:
    net = nn.BatchNorm1d(3)
    before = copy.deepcopy(net.state_dict())

    def changed_and_failed() -> None:
        with unchanged(net):
            net(torch.rand(4, 3))
            net.eval()
            assert net.num_batches_tracked == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        changed_and_failed()
    assert same(dict(before), dict(net.state_dict()))
    assert net.training


# --- Tensors that are not ordinary -----------------------------------------------------------------------------------


SPARSE = {
    "coo": lambda w: w.to_sparse(),
    "csr": lambda w: w.to_sparse_csr(),
    "csc": lambda w: w.to_sparse_csc(),
    "bsr": lambda w: w.to_sparse_bsr((1, 1)),
    "bsc": lambda w: w.to_sparse_bsc((1, 1)),
}


class WithSparse(nn.Module):
    def __init__(self, weight: Tensor, use: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.spike, self.last = nn.Linear(4, 3), Spike(), nn.Linear(3, 2)
        self.sparse = nn.Parameter(weight)
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.use(self.sparse, self.spike(self.first(x))))


def multiplied(weight: Tensor, spikes: Tensor) -> Tensor:
    return torch.sparse.mm(weight, spikes.T).T


def scaled_in_place(weight: Tensor, spikes: Tensor) -> Tensor:
    weight.data.mul_(0.5)
    return spikes


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", SPARSE)
def test_a_model_with_sparse_parameters_is_put_back(layout: str) -> None:
    weight = SPARSE[layout](torch.eye(3))
    net = WithSparse(weight.clone(), multiplied)
    with pytest.raises(PicojouleError, match="cannot count"):
        trace(net, torch.zeros(1, 4))
    assert net.training
    net.use = scaled_in_place
    assert trace(net, torch.zeros(1, 4))["spike"].synapses == 6
    assert net.training
    assert torch.equal(net.sparse.to_dense(), weight.to_dense())


def test_a_model_with_meta_parameters_is_put_back() -> None:
    net = nn.Sequential(nn.Linear(4, 3), Spike(), nn.Linear(3, 2, device="meta"))
    assert trace(net, torch.zeros(1, 4))["1"].synapses == 6
    assert net.training
    assert net[2].weight.is_meta
    net = nn.Sequential(nn.Linear(4, 3, device="meta"), nn.BatchNorm1d(3, device="meta"), Spike())
    for example in (torch.zeros(1, 4), torch.zeros(1, 4, device="meta")):
        with pytest.raises(PicojouleError, match="off the meta device"):
            trace(net, example)
        assert net.training


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "odd", [lambda: torch.nested.nested_tensor([torch.ones(2)]), lambda: torch.ones(3).to_mkldnn()]
)
def test_tensors_that_could_not_be_put_back_are_refused_before(odd: Callable[[], Tensor]) -> None:
    net = nn.Sequential(nn.Linear(4, 3), Spike())
    net.register_buffer("odd", odd())
    with pytest.raises(PicojouleError, match="cannot be copied and compared"):
        trace(net, torch.zeros(1, 4))
    assert net.training


def test_what_can_be_restored_is_restored_before_anything_is_raised() -> None:
    class Stubborn(list[int]):
        def __setitem__(self, *arguments: Any) -> None:
            raise RuntimeError("no")

    net = nn.BatchNorm1d(3)
    net.first, net.log = Stubborn(), [1]
    mean = net.running_mean.clone()

    @unchanged(net)
    def change() -> None:
        net.eval()
        net.running_mean.add_(1)
        net.log.append(2)

    with pytest.raises(PicojouleError, match=r"1 of the model's .* could not be put back .*\(no\)"):
        change()
    assert net.training
    assert torch.equal(net.running_mean, mean)
    assert net.log == [1]


# --- Threads ---------------------------------------------------------------------------------------------------------


def all_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


class Meeting(nn.Module):
    """Lets something happen in the middle of its forward pass."""

    def __init__(self, happen: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.first, self.spike, self.last = nn.Linear(4, 3), Spike(), nn.Linear(3, 2)
        self.happen = happen

    def forward(self, x: Tensor) -> Tensor:
        self.happen()
        return self.last(self.spike(self.first(x)))


def test_threads_that_trace_one_model_wait_for_each_other() -> None:
    inside, most = 0, 0

    def happen() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)  # long enough for the others to come in, if they could
        inside -= 1

    net = Meeting(happen)
    with ThreadPoolExecutor(4) as pool:
        counted = list(pool.map(lambda _: trace(net, torch.zeros(1, 4))["spike"].synapses, range(8)))
    assert (counted, most) == ([6] * 8, 1)
    assert all_hooks(net) == 0
    assert net.training


def test_a_block_that_ends_in_another_thread_while_a_model_is_traced_leaves_no_hooks() -> None:
    traced, watched = threading.Event(), threading.Event()

    def happen() -> None:
        if threading.current_thread() is not threading.main_thread():
            traced.set()
            time.sleep(0.05)  # the block ends now, or has to wait

    net = Meeting(happen)
    with ThreadPoolExecutor(1) as pool:
        with watch(net):
            net(torch.zeros(1, 4))
            tracing = pool.submit(lambda: watched.wait() and trace(net, torch.zeros(1, 4)))
            watched.set()
            assert traced.wait(60)
        assert tracing.result()["spike"].synapses == 6
    assert all_hooks(net) == 0


def test_another_thread_that_runs_a_model_while_it_is_traced_is_told() -> None:
    told: list[Exception] = []

    def happen() -> None:
        if threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=run)
            other.start()
            other.join()

    def run() -> None:
        try:
            net(torch.zeros(1, 4))
        except PicojouleError as error:
            told.append(error)

    net = Meeting(happen)
    with pytest.raises(PicojouleError, match="called by another thread while its model is being traced"):
        trace(net, torch.zeros(1, 4))
    assert len(told) == 1
    assert all_hooks(net) == 0
    assert net(torch.zeros(1, 4)).shape == (1, 2)
