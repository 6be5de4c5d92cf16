"""Checks across the keys of a recipe, each of which is valid by itself: which of them go together."""

from __future__ import annotations

from picojoule import zoo
from picojoule.data import DATASETS
from picojoule.data.datasets import RecordedSet
from picojoule.data.recorded import Frames, check_frames
from picojoule.errors import PicojouleError
from picojoule.neurons.surrogate import ChecksThreshold
from picojoule.recipe.phrases import shown
from picojoule.recipe.sections import MEMBRANE_KEYS, Content

ZOO_SIDE = 32
"""Height and width of the images that every network of the zoo takes."""


def check(recipe: Content) -> None:
    """Refuse keys that do not go together.

    Args:
        recipe: All keys, each valid by itself.

    Raises:
        PicojouleError: If two keys contradict each other; the message names them and says what to take.
    """
    _check_size(recipe)
    _check_model(recipe)
    _check_data(recipe)
    _check_neuron(recipe)
    _check_penalty(recipe)
    _check_budget(recipe)
    _check_energy(recipe)


_LARGEST = 1e30
"""The largest size of a learning rate, weight decay or threshold; float32 ends at 3.4e38."""


def _check_size(recipe: Content) -> None:
    """Refuse scalars that float32 cannot hold, which PyTorch does not take."""
    scalars = {
        "optimizer.lr": recipe.optimizer.lr,
        "optimizer.weight_decay": recipe.optimizer.weight_decay,
        "neuron.threshold": recipe.neuron.threshold,
    }
    for key, value in scalars.items():
        if abs(value) > _LARGEST:
            raise PicojouleError(
                f"{key} = {value:g} is not allowed, for networks are trained in float32: take a number of size up to "
                f"{_LARGEST:g}"
            )


def _check_model(recipe: Content) -> None:
    """Refuse arguments of a network of the zoo, which has none, and those that the recipe gives to a factory itself."""
    for name in recipe.model.args or {}:
        if name in zoo.imported.GIVEN:
            raise PicojouleError(
                f"model.args.{name} is not allowed, for the factory gets {name} from {zoo.imported.GIVEN[name]} of the "
                "recipe: leave it out, or give the argument another name"
            )
    if recipe.model.args is not None and recipe.model.name in zoo.names():
        raise PicojouleError(
            f"model.args is not allowed with model.name = {recipe.model.name!r}: it is for a factory of your own, so "
            "leave it out"
        )


def _check_data(recipe: Content) -> None:
    """Refuse more images than there are, and images of a size that the model does not take."""
    data = recipe.data
    if data.own:
        _check_own_data(recipe)
        return
    for key in ("size", "shape", "classes", "content"):
        if getattr(data, key) is not None:
            raise PicojouleError(
                f"data.{key} = {shown(getattr(data, key))} is not allowed with data.name = {data.name!r}, whose images "
                "are known: leave it out"
            )
    limits = {"limit": data.limit, "limit_validation": data.limit_validation, "limit_test": data.limit_test}
    for (key, limit), images in zip(limits.items(), DATASETS[data.name].splits, strict=True):
        if limit is not None and not recipe.classes <= limit <= images:
            raise PicojouleError(
                f"data.{key} = {limit} is not allowed with data.name = {data.name!r}: take a whole number from "
                f"{recipe.classes}, one image per class, to {images}, or leave it out"
            )
    _check_recordings(recipe)
    _check_frames_fit(recipe)
    height, width = recipe.input_shape[1:]
    if (
        recipe.model.name in zoo.names()
        and not zoo.takes_frames(recipe.model.name)
        and (height, width) != (ZOO_SIDE, ZOO_SIDE)
    ):
        raise PicojouleError(
            f"data.pad = {data.pad} makes the images of {data.name!r} {height}×{width}, but model.name = "
            f"{recipe.model.name!r} takes {ZOO_SIDE}×{ZOO_SIDE}: take data.pad = {data.pad + (ZOO_SIDE - height) // 2}"
        )


def _check_frames_fit(recipe: Content) -> None:
    """Refuse frames over time for a network of the zoo that takes images."""
    model = recipe.model.name
    if recipe.frames is not None and model in zoo.names() and not zoo.takes_frames(model):
        frames = [name for name in zoo.names() if zoo.takes_frames(name)]
        raise PicojouleError(
            f"the samples of {recipe.data.name!r} have {recipe.frames} frames, but model.name = {model!r} takes "
            f"images: take {' or '.join(map(repr, frames))}, or a network of your own"
        )


def _check_recordings(recipe: Content) -> None:
    """Refuse keys of recordings for images, frames that the recordings do not have, and spikes that are changed."""
    data, known = recipe.data, DATASETS.get(recipe.data.name)
    if isinstance(known, RecordedSet):
        check_frames(known, Frames(data.frames, data.encoding, data.threshold))
        if data.pad:
            raise PicojouleError(f"data.pad = {data.pad} is for images, not for {data.name!r}: take data.pad = 0")
    else:
        for key in ("frames", "threshold", *(() if data.own else ("encoding",))):
            if getattr(data, key) is not None:
                raise PicojouleError(
                    f"data.{key} = {shown(getattr(data, key))} is for recordings over time, not for {data.name!r}: "
                    "leave it out"
                )
    if recipe.spiking_input and data.normalize:
        raise PicojouleError(
            "data.normalize = true would make analog values of spikes: take data.normalize = false, or data.encoding = "
            "'currents'"
        )
    if recipe.frames is not None and recipe.frames != recipe.neuron.steps:
        raise PicojouleError(
            f"neuron.steps = {recipe.neuron.steps} is not allowed with {data.name!r}, whose samples have "
            f"{recipe.frames} frames: take neuron.steps = {recipe.frames}"
        )
    if recipe.frames is not None and data.augment:
        raise PicojouleError(
            f"data.augment = true is for grey or coloured pictures, not for samples of {data.name!r}: take false"
        )


def _check_own_data(recipe: Content) -> None:
    """Refuse what does not go with data of the user's own; their shape is known once they were loaded."""
    data, model = recipe.data, recipe.model.name
    if data.size is not None and not data.name.startswith("folder:"):
        raise PicojouleError(
            f"data.size = {data.size} is for pictures in a folder, not for {data.name!r}: leave it out"
        )
    if (data.shape is None) is not (data.classes is None) or (data.shape is None) is not (data.content is None):
        raise PicojouleError(
            "data.shape, data.classes and data.content belong together: give all of them, or leave all of them out, "
            "and they are filled in"
        )
    if data.shape is None:
        return
    _check_recordings(recipe)
    if data.augment and (len(data.shape) != 3 or data.shape[0] not in (1, 3)):
        raise PicojouleError(
            f"data.augment = true is for grey or coloured pictures, not for samples of {data.name!r}: take false"
        )
    if (
        model in zoo.names()
        and not zoo.takes_frames(model)
        and (len(data.shape) != 3 or recipe.input_shape[1:] != (ZOO_SIDE, ZOO_SIDE))
    ):
        how = "data.size = 32" if data.name.startswith("folder:") else "data.pad, or a network of your own"
        raise PicojouleError(
            f"the samples of {data.name!r} are {'×'.join(map(str, data.shape))} with data.pad = {data.pad}, but "
            f"model.name = {model!r} takes images of {ZOO_SIDE}×{ZOO_SIDE}: take {how}"
        )


def _check_neuron(recipe: Content) -> None:
    """Refuse keys that the kind of neuron does not have."""
    neuron = recipe.neuron
    here = f"is not allowed with neuron.kind = {neuron.kind!r}"
    if neuron.kind not in ("if", "lif") and neuron.steps != 1:
        raise PicojouleError(f"neuron.steps = {neuron.steps} {here}, which has no memory: take neuron.steps = 1")
    for key in MEMBRANE_KEYS:
        value = getattr(neuron, key)
        if value is not None and (neuron.kind not in ("if", "lif") or (neuron.kind == "if" and key == "leak")):
            kinds = "'lif'" if key == "leak" else "'if' or 'lif'"
            raise PicojouleError(f"neuron.{key} = {shown(value)} {here}: leave it out or take neuron.kind = {kinds}")
    if neuron.kind == "relu":
        if recipe.penalty.strength > 0:
            raise PicojouleError(
                f"penalty.strength = {recipe.penalty.strength:g} is not allowed with neuron.kind = 'relu', which has "
                "no spikes: take penalty.strength = 0 or neuron.kind = 'spike'"
            )
        return
    if neuron.kind == "qrelu":
        if neuron.threshold != 1:
            raise PicojouleError(
                f"neuron.threshold = {neuron.threshold:g} {here}, whose steps are 1: take neuron.threshold = 1"
            )
        return
    if neuron.kind in ("if", "lif") and neuron.threshold <= 0:
        raise PicojouleError(
            f"neuron.threshold = {neuron.threshold:g} {here}, whose potential starts at 0: take a number above 0"
        )
    surrogate = recipe.build_surrogate()
    if isinstance(surrogate, ChecksThreshold):
        try:
            surrogate.check_threshold(neuron.threshold)
        except PicojouleError as fault:
            raise PicojouleError(
                f"neuron.threshold = {neuron.threshold:g} is not allowed with neuron.surrogate = "
                f"{neuron.surrogate!r}: {fault}"
            ) from None


def _check_penalty(recipe: Content) -> None:
    """Refuse keys of a target without a target, and the other way round."""
    penalty = recipe.penalty
    if penalty.kind != "target":
        for key, value in (("target", penalty.target), ("reference", penalty.reference)):
            if value is not None and not (key == "reference" and penalty.budget is not None):
                raise PicojouleError(
                    f"penalty.{key} = {shown(value)} is not allowed with penalty.kind = {penalty.kind!r}: leave it "
                    "out or take penalty.kind = 'target'"
                )
        return
    if penalty.target is None:
        raise PicojouleError(
            "penalty.target is missing, which penalty.kind = 'target' needs: take the synaptic operations per image "
            "that the network is to spend, or a share of those of the run that penalty.reference names"
        )
    if penalty.p != 1 or not penalty.normalized:
        raise PicojouleError(
            "penalty.kind = 'target' is ((S − S0)/S0)², for which penalty.p and penalty.normalized have no meaning: "
            "leave them out"
        )


def _check_energy(recipe: Content) -> None:
    """Refuse merged chains under a formula that looks at single layers."""
    if recipe.energy.chains == "merged" and recipe.energy.psi != "exact":
        raise PicojouleError(
            f"energy.chains = 'merged' counts the synapses that exist, which energy.psi = {recipe.energy.psi!r} does "
            "not: take energy.psi = 'exact', or leave energy.chains out"
        )


SHORTEST_BUDGET_RUN = 3
"""Epochs: one to see what the network spends, one to go down, one to stay there."""


def _check_budget(recipe: Content) -> None:
    """Refuse schedules, guards and budgets that contradict other keys."""
    penalty = recipe.penalty
    if penalty.rise_from is not None and (penalty.schedule != "constant" or penalty.budget is not None):
        raise PicojouleError(
            f"penalty.rise_from = {penalty.rise_from:g} is a schedule of its own: take it with penalty.schedule = "
            "'constant' and without penalty.budget"
        )
    if penalty.guard and (recipe.neuron.kind == "relu" or penalty.kind == "target"):
        what = "neuron.kind = 'relu'" if recipe.neuron.kind == "relu" else "penalty.kind = 'target'"
        raise PicojouleError(f"penalty.guard = true is not allowed with {what}, which it cannot guard: leave it out")
    if penalty.budget is None:
        for key in ("budget_on", "strict"):
            if getattr(penalty, key) is not None:
                raise PicojouleError(
                    f"penalty.{key} = {shown(getattr(penalty, key))} is not allowed without penalty.budget: give a "
                    "budget, or leave it out"
                )
        return
    budget = f"penalty.budget = {shown(penalty.budget)}"
    if recipe.neuron.kind == "relu":
        raise PicojouleError(
            f"{budget} is not allowed with neuron.kind = 'relu', which has no spikes: leave it out or take "
            "neuron.kind = 'spike'"
        )
    if penalty.kind == "target":
        raise PicojouleError(
            f"{budget} is not allowed with penalty.kind = 'target', which has its own target: leave one of them out"
        )
    if penalty.strength > 0:
        raise PicojouleError(
            f"{budget} finds the strength by itself, so penalty.strength = {penalty.strength:g} cannot be kept: take "
            "penalty.strength = 0 or leave one of them out"
        )
    if penalty.schedule != "linear":
        raise PicojouleError(
            f"{budget} finds the strength by itself, so penalty.schedule = {penalty.schedule!r} has no meaning: leave "
            "it out"
        )
    if recipe.training.epochs < SHORTEST_BUDGET_RUN:
        raise PicojouleError(
            f"{budget} needs training.epochs of {SHORTEST_BUDGET_RUN} or more, not {recipe.training.epochs}: one to "
            "see what the network spends, one to go down, one to stay there"
        )
