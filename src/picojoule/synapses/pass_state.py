"""The state of a structural pass: tags of tensors, the module that is running, and what was recorded so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_leaves, tree_map_only
from picojoule.spikes.sums import precise
from picojoule.synapses.chains import Chains
from picojoule.synapses.expression import Emitted, Expression, has_complement, sources
from picojoule.synapses.masks import Masks
from picojoule.synapses.merging import Merging
from picojoule.synapses.recording import MadeCall, Recording, SynapticCall
from picojoule.synapses.rules.call import ChainsOfLayers, Psi
from picojoule.synapses.rules.passing import PassingRule
from picojoule.synapses.tags import Origin, Tag, Tags, pruned_tensors


class PassState:
    """What one structural pass knows while the model runs."""

    def __init__(
        self,
        model: nn.Module,
        psi: Psi,
        passing: Mapping[str, PassingRule],
        *,
        strict: bool = False,
        chains: ChainsOfLayers = "run",
    ) -> None:
        self.model = model
        self.strict = strict
        """Whether analog values that feed synapses are refused instead of counted apart."""
        self.psi = psi
        self.passing = passing
        """The passing rules by the name of the operation, those of this one call included."""
        self.recording = Recording()
        self.chains = Chains()
        self.fired: dict[str, list[Tensor]] = {}
        """What each layer has emitted in all calls of the model."""
        self.last_spikes: dict[str, Tensor] = {}
        """What modules with synapses inside emitted in their last call."""
        self.held_by: dict[int, str] = {}
        """The identities of states that such modules returned, and whose they are."""
        self.returned: set[str] = set()
        """Such modules whose state the model returns, so that its caller may give it back."""
        self.made_weights: dict[tuple[str, str], Tensor] = {}
        self.part: str | None = None
        """The name of the weights inside a module that are being counted."""
        self.units: set[str] = set()
        """Layers whose spikes are worth something else than 1."""
        self.pass_number = 0
        """How often the model was called."""
        self.path: list[str] = []
        """Names of the modules that are running now, the innermost last."""
        self.inside: list[str] = []
        """Spiking layers and relays that are running now: what they compute inside is not counted."""
        self.products_allowed = 0
        """Above 0 while products may run: those of constants, and those that are being counted."""
        self.dtype = torch.get_default_dtype()
        """The dtype in which the model's own neurons emit."""
        pruned = pruned_tensors(model)
        self.tags = Tags(model, pruned)
        self.masks = Masks(self.tags, pruned)
        self.merging = Merging(self.tags.is_activation) if chains == "merged" else None
        """What chains of layers without a neuron between them are folded into, where they are billed as one layer."""
        self.weights = {id(tensor) for tensor in model.parameters()}
        """The identities of the model's parameters and pruned weights."""
        self.weights |= {id(getattr(module, name)) for module, name in pruned}

    def tag(self, out: Any, tag: Tag) -> Any:
        """Give every tensor in a result the tag; the result is returned."""
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                if tag.origin & Origin.SPIKES and leaf.dtype in (torch.float16, torch.bfloat16):
                    self.refuse(
                        f"spikes are written into a {leaf.dtype} tensor {self.where()}, where counts above 256 would "
                        "be rounded: trace the model in float32"
                    )
                self.tags.put(leaf, tag)
        return out

    def tag_written(self, target: Any, tag: Tag) -> None:
        """Give the tag to what an operation wrote into, and to all views of that memory."""
        self.tag(target, tag)
        self.tags.overwrite(target, tag)

    def emit_input(self, example: Any) -> Any:
        """Put ones in place of the example's numbers (indices and masks keep theirs)."""

        def ones(tensor: Tensor) -> Tensor:
            with torch.inference_mode(False):
                emitted = torch.ones_like(tensor) if tensor.is_floating_point() else tensor.clone()
            self.tags.put(emitted, Tag(Origin.INPUT))
            return emitted

        return tree_map_only(Tensor, ones, example)

    def emit_spikes(self, name: str, like: Tensor) -> Tensor:
        """Emit fresh spikes of a layer, in the shape of what it really emitted."""
        with self.counting():
            # float64, so that counts stay exact however the paths branch and join; not every device has it.
            leaf = torch.zeros_like(like, dtype=precise(like.device), requires_grad=True)
            calls = self.recording.leaves.setdefault(name, [])
            calls.append(leaf)
            weights = (call.weight for call in reversed(self.recording.calls) if not call.unit)
            self.recording.fed_by.setdefault(name, []).append(next(weights, None))
            self.fired.setdefault(name, []).append(leaf)
            self.recording.order[name] = None
            self.dtype = like.dtype
            emitted = leaf.clone()  # what the model gets may be written to in place
        self.tags.put(emitted, Tag(Origin.SPIKES))
        self.chains.put(emitted, Emitted(name, len(calls) - 1, self.pass_number))
        return emitted

    def make(self, operation: str, expression: Expression, product: SynapticCall | None = None) -> str:
        """Note that an operation makes spikes of spikes, or counts pairs of them.

        Several such operations in one call of a module are told apart by number; the same one in several time steps is
        one.

        Args:
            operation: Its name.
            expression: What it makes.
            product: Its cost, if it is a product.

        Returns:
            The name under which it stands in the table.
        """
        if any(source.pass_number != self.pass_number for source in sources(expression)):
            self.refuse(
                f"{operation} {self.where()} takes spikes of an earlier call of the model: pairs of spikes of "
                "different calls are not counted, so reset the state at the beginning of forward"
            )
        if self.units & {source.name for source in sources(expression)} and has_complement(expression):
            self.refuse(
                f"{operation} {self.where()} takes 1 - s of spikes that are declared with unit= or signed=, which is "
                "no number of spikes: let the layer emit 0 and 1 there"
            )
        covered = frozenset(source.call for source in sources(expression))
        site, number = self.site(operation), 1
        taken = {name for name, _ in self.model.named_modules()}
        while True:
            name = site if number == 1 else f"{site}@{number}"
            calls = self.recording.made.get(name, [])
            if name not in taken and not any(covered & call.covered for call in calls):
                break
            number += 1
        self.recording.made.setdefault(name, []).append(MadeCall(expression, covered, product))
        self.recording.order[name] = None
        return name

    def site(self, operation: str) -> str:
        """Name an operation by the module that it runs in."""
        path = self.path[-1] if self.path else ""
        return f"{path}.{operation}".lstrip(".")

    @property
    def emitted(self) -> list[Tensor]:
        """All spikes that were emitted so far in this call, with the gradient that counts connections."""
        return [leaf for leaves in self.recording.leaves.values() for leaf in leaves]

    def as_emitted(self, tensor: Tensor) -> Tensor:
        """Convert spikes to the dtype that the model gave them, for operations that insist on it."""
        return tensor.to(self.dtype) if self.tags.get(tensor).origin & Origin.SPIKES else tensor

    def where(self) -> str:
        """Say which module is running, for an error message."""
        return f"in module {self.path[-1]!r}" if self.path and self.path[-1] else "in the model's forward pass"

    def refuse(self, message: str) -> NoReturn:
        """Raise a `PicojouleError` and keep it, in case the model catches it."""
        self.recording.refusal = PicojouleError(message)
        raise self.recording.refusal

    @contextmanager
    def allowing_products(self) -> Iterator[None]:
        """Let products run that are not to be counted."""
        self.products_allowed += 1
        try:
            yield
        finally:
            self.products_allowed -= 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Switch gradients on, which are connections here, whatever the model (or checkpointing) does with them."""
        with (
            self.allowing_products(),
            torch.inference_mode(False),
            torch.enable_grad(),
            saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor),
        ):
            yield
