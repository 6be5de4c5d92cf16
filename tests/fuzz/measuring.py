"""One random network through all that picojoule does with networks, held against the kernels that really ran."""

from __future__ import annotations

import contextlib
import io
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import picojoule as pj
from fuzz import state
from fuzz.blocks import Checkpoints
from fuzz.networks import Built, Spec, built, forget_states
from fuzz.oracle import Oracle
from fuzz.outcome import Outcome


class Refused(Exception):
    """picojoule said no, in its own words."""


def tried(outcome: Outcome, what: str, model: nn.Module, action: Callable[[], Any]) -> Any:
    """The result of something that picojoule does; it may refuse, but raise nothing else and change nothing."""
    before = state.taken(model)
    try:
        return action()
    except pj.PicojouleError as refusal:
        outcome.notes.append(f"{what} refused")
        _check_words(outcome, what, str(refusal))
        raise Refused(str(refusal)) from None
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        name = f"{what} raised {type(error).__name__}"
        outcome.failures.append((name, f"{error} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})"[:400]))
        raise Refused(str(error)) from None
    finally:
        changed = state.differences(before, state.taken(model))
        if changed:
            outcome.failures.append((f"{what} changed the model", "; ".join(changed[:4])))


def _check_words(outcome: Outcome, what: str, message: str) -> None:
    if not message.strip() or "\n" in message.strip() or "Traceback" in message:
        outcome.failures.append((f"{what} refused in more than a sentence", message[:400]))


def measured(spec: Spec, *, exports: Collection[str] = ()) -> Outcome:
    """Try one network."""
    outcome = Outcome()
    with quiet():
        made = built(spec)
        try:
            with torch.no_grad():
                expected = ran(made)
        except Exception as error:  # the network itself does not run
            outcome.notes.append(f"no network: {type(error).__name__}")
            return outcome
        with contextlib.suppress(Refused):
            synapses = counted(made, outcome, expected)
            if not outcome.failures:
                penalised(made, outcome, synapses)
        with contextlib.suppress(Refused):
            compiled(made, outcome)
        if exports:
            from fuzz.exporting import exported

            exported(made, outcome, exports)
    outcome.notes = outcome.notes or ["measured"]
    return outcome


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def ran(made: Built) -> Tensor:
    """The network's output from rest, over all its steps."""
    forget_states(made.model)
    times = made.spec.steps if made.spec.how == "calls" else 1
    out = [made.model(made.images) for _ in range(times)]
    forget_states(made.model)
    return torch.stack(out)


# ----------------------------------------------------------------------------------------------------------- counting


def counted(made: Built, outcome: Outcome, expected: Tensor) -> pj.Synapses:
    """Trace, watch and meter against the oracle."""
    spec, model = made.spec, made.model
    steps = 1 if spec.how == "calls" else spec.steps
    example = torch.zeros_like(made.images[: 2 if steps == 1 else 1])  # as many samples as steps cannot be told apart
    synapses: pj.Synapses = tried(outcome, "trace", model, lambda: pj.trace(model, example, steps=steps))

    def metered() -> tuple[Tensor, Any]:
        with torch.no_grad(), pj.watch(model, steps=spec.steps) as activity:
            out = ran(made)
        meter = pj.EnergyMeter(synapses)
        meter.update(activity)
        return out, meter.compute()

    out, report = tried(outcome, "meter", model, metered)
    if not torch.equal(out, expected):
        outcome.failures.append(("watch changed the output", f"by up to {(out - expected).abs().max():.3g}"))
    oracle = consulted(made)
    if oracle.odd:
        outcome.failures.append(("accepted odd spikes", "; ".join(oracle.odd[:2])))
        return synapses
    synops, macs = report.synops * spec.batch, (report.encoder_macs + report.analog_macs) * spec.batch
    unit = report.unit_synops * spec.batch
    if oracle.hidden and round(synops) <= round(oracle.synops):
        outcome.failures.append(("counted nothing for hidden weights", "; ".join(oracle.hidden[:2])))
    elif oracle.lost or oracle.hidden:
        outcome.notes.append("oracle abstains")
    else:
        _compare(outcome, "synops", made, synops - unit, oracle.synops, oracle.dense_synops)
        _compare(outcome, "unit synops", made, unit, oracle.unit_synops, oracle.unit_synops)
        _compare(outcome, "encoder MACs", made, macs, oracle.macs, oracle.dense_macs)
        outcome.notes.append("counted")
    return synapses


def _compare(outcome: Outcome, what: str, made: Built, said: float, true: float, dense: float) -> None:
    least, most = (true, dense) if made.accidental_zeros else (true, true)
    if not least - 0.01 <= said <= most + 0.01:
        way = "too many" if said > most else "too few"
        outcome.failures.append((f"{way} {what}", f"{said:g} instead of {true:g}"))


def consulted(made: Built) -> Oracle:
    oracle = Oracle()
    oracle.mark_input(made.images)
    with torch.no_grad(), oracle.watched(made.neurons, made.identities):
        out = ran(made)
    oracle.mark_end("the network's output", out)
    return oracle


# ---------------------------------------------------------------------------------------------------------- penalties


def penalised(made: Built, outcome: Outcome, synapses: pj.Synapses) -> None:
    """The penalty's value and gradient while the network trains, against the sum written down."""
    spec, model = made.spec, made.model
    if spec.how == "calls" or not synapses.synapses:
        return
    model.train()
    try:
        before = {name: b.clone() for name, b in model.named_buffers()}
        try:
            value, gradients = _plainly(made, synapses)
        except Exception:  # batch norm of a single value, and the like
            return
        for name, b in model.named_buffers():
            b.copy_(before[name])

        def ours() -> tuple[Tensor, list[Tensor | None]]:
            forget_states(model)
            torch.manual_seed(1)
            penalty = pj.Penalty(synapses, normalized=False)
            with pj.watch(model, steps=spec.steps) as activity:
                model(made.images)
            value = penalty(activity)
            return value.detach(), _gradients(value, model)

        try:
            said, found = ours()
        except pj.PicojouleError as refusal:
            outcome.notes.append("penalty refused")
            _check_words(outcome, "penalty", str(refusal))
            return
        except Exception as error:
            if not _trains_again(made, synapses):
                outcome.notes.append("no network: it can be trained once only")
                return
            outcome.failures.append((f"penalty raised {type(error).__name__}", str(error)[:300]))
            return
        rough = spec.dtype in ("half", "bfloat16")
        if not torch.allclose(said.double(), value, rtol=1e-5, atol=1e-6):
            outcome.failures.append(("penalty has another value", f"{float(said)} instead of {float(value)}"))
        elif not rough and not _close(found, gradients) and not _is_rounding(spec):
            lost = all(g is None or not g.any() for g in found)
            outcome.failures.append(("penalty has no gradient" if lost else "penalty has another gradient", ""))
        else:
            outcome.notes.append("penalised")
    finally:
        model.eval()
        forget_states(model)


def _is_rounding(spec: Spec) -> bool:
    """Whether gradients that differ in float32 are alike in float64: behind a batch norm of few values much cancels."""
    if spec.dtype != "float32":
        return False
    made, outcome = built(replace(spec, dtype="float64")), Outcome()
    with torch.no_grad():
        expected = ran(made)
    with contextlib.suppress(Refused):
        penalised(made, outcome, counted(made, outcome, expected))
    return "penalised" in outcome.notes and not outcome.failures


def _trains_again(made: Built, synapses: pj.Synapses) -> bool:
    """Whether the plain sum has a gradient once more; not where a pruned weight is used past its layer."""
    try:
        _plainly(made, synapses)
    except Exception:
        return False
    return True


def _plainly(made: Built, synapses: pj.Synapses) -> tuple[Tensor, list[Tensor | None]]:
    """Σ ψ s over a batch, from hooks of our own and without checkpoints."""
    emitted: list[tuple[str, Tensor]] = []
    handles = [
        made.model.get_submodule(name).register_forward_hook(
            lambda module, args, out, name=name: emitted.append((name, out))
        )
        for name in synapses
    ]
    forget_states(made.model)
    Checkpoints.on = False
    try:
        torch.manual_seed(1)
        made.model(made.images)
    finally:
        Checkpoints.on = True
        for handle in handles:
            handle.remove()
    calls: Counter[str] = Counter()
    total: Any = 0
    for name, spikes in emitted:
        layer = synapses[name]
        if layer.by_step is not None:  # spikes of the last step are fed back to nothing
            layer = layer.kinds[layer.by_step.of(layer.by_step.steps)[calls[name]]]
        calls[name] += 1
        total = total + (layer.fan_out.double() * spikes.double()).sum() / made.spec.batch
    assert isinstance(total, Tensor)
    return total.detach(), _gradients(total, made.model)


def _gradients(value: Tensor, model: nn.Module) -> list[Tensor | None]:
    wanted = [p for p in model.parameters() if p.requires_grad]
    if not value.requires_grad or not wanted:
        return [None] * len(wanted)
    return list(torch.autograd.grad(value, wanted, allow_unused=True))


def _close(found: list[Tensor | None], true: list[Tensor | None]) -> bool:
    def zero(g: Tensor | None) -> bool:
        return g is None or not g.any()

    # A bias in front of a batch norm has a gradient of nothing but rounding: the largest one is the measure for all.
    largest = max((float(t.abs().max()) for t in true if t is not None), default=0.0)
    return all(
        (zero(f) and zero(t)) or torch.allclose(_filled(f, t), _filled(t, f), rtol=1e-3, atol=1e-5 * largest)
        for f, t in zip(found, true, strict=True)
    )


def _filled(gradient: Tensor | None, like: Tensor | None) -> Tensor:
    if gradient is not None:
        return gradient
    assert like is not None
    return torch.zeros_like(like)


# ------------------------------------------------------------------------------------------------------------- engine

CLOSE_TO_THRESHOLD = 1e-4


def far_from_ties(made: Built) -> Tensor:
    """Samples of which no potential lies so near its threshold that another order of summation may decide."""
    far = torch.ones(made.spec.batch, dtype=torch.bool)

    def look(module: nn.Module, args: Any) -> None:
        u = args[0].detach().double().flatten(1)
        far.logical_and_(((u - module.threshold).abs() > CLOSE_TO_THRESHOLD * u.abs().clamp(min=1)).all(1))

    handles = [neuron.register_forward_pre_hook(look) for neuron in made.neurons.values()]
    try:
        with torch.no_grad():
            ran(made)
    finally:
        for handle in handles:
            handle.remove()
    return far


def compiled(made: Built, outcome: Outcome) -> None:
    """The event engine's answers, spikes and operations against the model's."""
    spec, model = made.spec, made.model
    if spec.neuron != "spike" or spec.how not in ("once", "calls"):
        return
    engine = tried(outcome, "engine", model, lambda: pj.events.compile(model, made.images[:1]))
    result = tried(outcome, "engine's answer", model, lambda: engine(made.images))
    if spec.dtype in ("half", "bfloat16"):
        outcome.failures.append(("engine took a network of another precision", spec.dtype))
        return
    with torch.no_grad():
        forget_states(model)
        expected = model(made.images)
        forget_states(model)
    far = far_from_ties(made) if spec.how == "once" else torch.ones(spec.batch, dtype=torch.bool)
    if result.logits.shape != expected.shape:
        outcome.failures.append(("engine has another shape", f"{result.logits.shape} for {expected.shape}"))
        return
    error = (result.logits[far].double() - expected[far].double()).abs()
    size = 1 + expected.abs().max()
    if error.numel() and not bool((error <= 1e-3 * size).all()):
        outcome.failures.append(("engine has other outputs", f"off by {float(error.max()):.3g}"))
        return
    if spec.how == "once" and bool(far.all()):
        oracle = consulted(made)
        if not (oracle.lost or oracle.hidden or oracle.odd):
            said = float(result.synops.sum())
            _compare(outcome, "synops in the engine", made, said, oracle.synops, oracle.dense_synops)
    outcome.notes.append("engine agrees")
