"""Every table and figure of the paper as a named experiment."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from picojoule.errors import unknown
from picojoule.paper import reference
from picojoule.paper.ablation import Ablation
from picojoule.paper.area import Area
from picojoule.paper.context import Work
from picojoule.paper.conversion import Conversion
from picojoule.paper.curves import FIRST_POWER, ONLY_SYN, SIX, Grid, Tradeoff
from picojoule.paper.settings import MODELS, setting, spoken
from picojoule.paper.structure import Architectures, Hyperparameters, LayerShares, Totals
from picojoule.paper.training_time import TrainingTime
from picojoule.report import RunGroup


@dataclass(frozen=True)
class Experiment:
    """One table or figure, or a figure and the table that goes with it."""

    name: str
    title: str
    labels: tuple[str, ...]
    """Of the paper's tables and figures, as in its source."""
    work: Work
    panel: str = ""
    """Which part of a figure with several."""

    @property
    def place(self) -> str:
        """
        >>> find("tradeoff-cnn7-adam").place
        'Figure 3 (A), Table 4'
        """
        places = [reference.places()[label] for label in self.labels]
        return ", ".join(f"{place} ({self.panel})" if self.panel and "Fig" in place else place for place in places)


_CURVES, _CURVES_TOO = "fig:comparison-scaling-curves", "fig:comparison-scaling-factor-merged"
_SPREAD = (2, 8, 32, 128, 512, 2048)
"""λ' of the small scale: every other power of two, over the range in which CNN7 goes from all of its energy to 3 %."""
_ALL_SIX, _FIRST_POWERS, _TWO = Grid(SIX, _SPREAD), Grid(FIRST_POWER, _SPREAD), Grid(ONLY_SYN, (128, 512))

_CNN7_ADAM = "cnn7-fashion-mnist-adam-s3nn"
_SCORES = "tbl:quantitative-comparison"
_CNN7 = Tradeoff(_CNN7_ADAM, f"{_SCORES}-fmnist-cnn6-adam", _ALL_SIX)
_RESNET18_SGD = Tradeoff("resnet18-cifar-10-sgd-s3nn", f"{_SCORES}-cifar10-resnet18-msgd", _TWO)
_CIFAR_100 = Tradeoff(
    "resnet18-cifar-10-adam-s3nn", "tbl:quantitative-cifar100-resnet18-adam", _TWO, ("data.name=cifar-100",)
)


def _layers(model: str, label: str, panel: str = "") -> Experiment:
    title = f"each layer's share of the energy and of the penalties, {MODELS[model]}"
    return Experiment(
        f"layers-{model}", title, (f"fig:comparison-scaling-factor-{label}-flops",), LayerShares(model), panel
    )


def _ablation(base: str, label: str, grid: str = "") -> Experiment:
    work = Ablation(base, f"tbl:ablation-{label}", f"tbl:ablation-{grid}" if grid else "")
    title = f"ablation over λ, λ_WD and B_BN, {spoken(setting(base))}"
    return Experiment(f"ablation-{label.replace('cnn6', 'cnn7')}", title, (work.label,), work)


def _tradeoff(name: str, work: Tradeoff, figure: str, panel: str = "", surrogate: str = "") -> Experiment:
    about = spoken(setting(work.base, *work.changes)) + surrogate
    return Experiment(f"tradeoff-{name}", f"trade-off curves and scores, {about}", (figure, work.label), work, panel)


_ALL = (
    Experiment("totals", "total penalty terms", ("tbl:comparison-scaling-factor-metrics",), Totals()),
    _layers("cnn7", "cnn6"),
    _layers("vgg11", "vgg11-resnet18", "A"),
    _layers("resnet18", "vgg11-resnet18", "B"),
    _ablation(_CNN7_ADAM, "cnn6-adam", grid="cnn6-msgd"),
    _ablation("cnn7-fashion-mnist-sgd-s3nn", "cnn6-msgd"),
    _ablation("vgg11-cifar-10-adam-s3nn", "vgg11-adam"),
    _ablation("vgg11-cifar-10-sgd-s3nn", "vgg11-msgd"),
    _ablation("resnet18-cifar-10-adam-s3nn", "resnet18-adam"),
    _ablation("resnet18-cifar-10-sgd-s3nn", "resnet18-msgd"),
    _tradeoff("cnn7-adam", _CNN7, _CURVES, "A"),
    _tradeoff(
        "cnn7-msgd", Tradeoff("cnn7-fashion-mnist-sgd-s3nn", f"{_SCORES}-fmnist-cnn6-msgd", _ALL_SIX), _CURVES_TOO
    ),
    _tradeoff("vgg11-adam", Tradeoff("vgg11-cifar-10-adam-s3nn", f"{_SCORES}-cifar10-vgg11-adam", _TWO), _CURVES_TOO),
    _tradeoff("vgg11-msgd", Tradeoff("vgg11-cifar-10-sgd-s3nn", f"{_SCORES}-cifar10-vgg11-msgd", _TWO), _CURVES_TOO),
    _tradeoff(
        "resnet18-adam",
        Tradeoff("resnet18-cifar-10-adam-s3nn", f"{_SCORES}-cifar10-resnet18-adam", _TWO),
        _CURVES_TOO,
    ),
    _tradeoff("resnet18-msgd", _RESNET18_SGD, _CURVES_TOO),
    _tradeoff("resnet18-cifar100-adam", _CIFAR_100, _CURVES_TOO),
    _tradeoff(
        "cnn7-triangle",
        Tradeoff("cnn7-fashion-mnist-adam-triangle", f"{_SCORES}-triangle", _FIRST_POWERS),
        _CURVES,
        "B",
        ", triangle surrogate",
    ),
    _tradeoff(
        "cnn7-sigmoid",
        Tradeoff("cnn7-fashion-mnist-adam-sigmoid", f"{_SCORES}-sigmoid", _FIRST_POWERS),
        _CURVES,
        "C",
        ", scaled-sigmoid surrogate",
    ),
    Experiment(
        "conversion",
        "comparison with conversion, CNN7 / Fashion-MNIST / Adam",
        (_CURVES, f"{_SCORES}-ann2snn"),
        Conversion(_CNN7, f"{_SCORES}-ann2snn"),
        "D",
    ),
    Experiment("training-time", "training time with each penalty", ("tbl:training-time",), TrainingTime()),
    Experiment("auc", "how AUC(P) is taken", ("fig:auc",), Area(full=_RESNET18_SGD, small=_CNN7)),
    Experiment("architectures", "the networks", ("tbl:network-architecture",), Architectures()),
    Experiment("hyperparameters", "the hyper-parameters", ("tbl:hyperparameter",), Hyperparameters()),
)

EXPERIMENTS = MappingProxyType({experiment.name: experiment for experiment in _ALL})


def printed_scores(found: RunGroup) -> dict[str, dict[str, float]]:
    """What the paper prints for the network, data set, optimizer and surrogate of these runs, if it has them."""
    same = (e.work for e in _ALL if isinstance(e.work, Tradeoff) and e.work.is_that_of(found))
    return next((reference.scores(work.label) for work in same), {})


def find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
