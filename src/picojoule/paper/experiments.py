"""Every table and figure of the paper as a named experiment."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from picojoule.errors import unknown
from picojoule.paper import published
from picojoule.paper.ablation import Ablation
from picojoule.paper.area import Area
from picojoule.paper.context import Experiment
from picojoule.paper.conversion import Conversion
from picojoule.paper.curves import FIRST_POWER, SIX, Grid, Tradeoff
from picojoule.paper.settings import MODELS, setting, setting_title
from picojoule.paper.structure import Architectures, Hyperparameters, LayerShares, Totals
from picojoule.paper.training_time import TrainingTime
from picojoule.report import RunGroup


@dataclass(frozen=True)
class NamedExperiment:
    """An experiment with its name and its place in the paper: a table or figure, or a figure with its table.

    Attributes:
        name: What it is called on the command line.
        title: What it shows.
        labels: The labels of the tables and figures in the paper's source.
        experiment: What is trained and measured for it.
        panel: The panel of a figure that has several.

    >>> find("tradeoff-cnn7-adam").place
    'Figure 3 (A), Table 4'
    """

    name: str
    title: str
    labels: tuple[str, ...]
    experiment: Experiment
    panel: str = ""

    @property
    def place(self) -> str:
        """Its tables and figures as the paper numbers them."""
        places = [published.places()[label] for label in self.labels]
        return ", ".join(f"{place} ({self.panel})" if self.panel and "Fig" in place else place for place in places)


_CURVES, _CURVES_TOO = "fig:comparison-scaling-curves", "fig:comparison-scaling-factor-merged"
_SEVEN = (1, 4, 16, 64, 256, 1024, 8192)
"""λ' below the full scale, over the whole of the paper's range and denser where CNN7 gives up most energy."""
_HALVES = (2, 8, 32, 128, 512)
"""λ' of p = 2: half of the middle ones, at which its gradient on firing neurons is that of p = 1."""
_FOUR = (4, 16, 64, 256)
_ALL_SIX = Grid(SIX, {1: _SEVEN, 2: _HALVES})
_THREE = Grid(FIRST_POWER, {1: _FOUR})
_DEEP = Grid(FIRST_POWER, {1: (16, 64, 256)})
"""What ten and twenty spiking layers are trained with."""

_CNN7_ADAM = "cnn7-fashion-mnist-adam-s3nn"
_SCORES = "tbl:quantitative-comparison"
_CNN7 = Tradeoff(_CNN7_ADAM, f"{_SCORES}-fmnist-cnn6-adam", _ALL_SIX)
_RESNET18_SGD = Tradeoff("resnet18-cifar-10-sgd-s3nn", f"{_SCORES}-cifar10-resnet18-msgd", _DEEP)
_CIFAR_100 = Tradeoff("resnet18-cifar-10-adam-s3nn", "tbl:quantitative-cifar100-resnet18-adam", _DEEP, "cifar-100")


def _layer_shares(model: str, label: str, panel: str = "") -> NamedExperiment:
    title = f"each layer's share of the energy and of the penalties, {MODELS[model]}"
    return NamedExperiment(
        f"layers-{model}", title, (f"fig:comparison-scaling-factor-{label}-flops",), LayerShares(model), panel
    )


def _ablation(base: str, label: str, grid: str = "") -> NamedExperiment:
    experiment = Ablation(base, f"tbl:ablation-{label}", f"tbl:ablation-{grid}" if grid else "")
    title = f"ablation over λ, λ_WD and B_BN, {setting_title(setting(base))}"
    return NamedExperiment(f"ablation-{label.replace('cnn6', 'cnn7')}", title, (experiment.label,), experiment)


def _tradeoff(name: str, experiment: Tradeoff, figure: str, panel: str = "", surrogate: str = "") -> NamedExperiment:
    about = setting_title(experiment.setting()) + surrogate
    return NamedExperiment(
        f"tradeoff-{name}", f"trade-off curves and scores, {about}", (figure, experiment.label), experiment, panel
    )


_ALL = (
    NamedExperiment("totals", "total penalty terms", ("tbl:comparison-scaling-factor-metrics",), Totals()),
    _layer_shares("cnn7", "cnn6"),
    _layer_shares("vgg11", "vgg11-resnet18", "A"),
    _layer_shares("resnet18", "vgg11-resnet18", "B"),
    _ablation(_CNN7_ADAM, "cnn6-adam", grid="cnn6-msgd"),
    _ablation("cnn7-fashion-mnist-sgd-s3nn", "cnn6-msgd"),
    _ablation("vgg11-cifar-10-adam-s3nn", "vgg11-adam"),
    _ablation("vgg11-cifar-10-sgd-s3nn", "vgg11-msgd"),
    _ablation("resnet18-cifar-10-adam-s3nn", "resnet18-adam"),
    _ablation("resnet18-cifar-10-sgd-s3nn", "resnet18-msgd"),
    _tradeoff("cnn7-adam", _CNN7, _CURVES, "A"),
    _tradeoff("cnn7-msgd", Tradeoff("cnn7-fashion-mnist-sgd-s3nn", f"{_SCORES}-fmnist-cnn6-msgd", _THREE), _CURVES_TOO),
    _tradeoff("vgg11-adam", Tradeoff("vgg11-cifar-10-adam-s3nn", f"{_SCORES}-cifar10-vgg11-adam", _DEEP), _CURVES_TOO),
    _tradeoff("vgg11-msgd", Tradeoff("vgg11-cifar-10-sgd-s3nn", f"{_SCORES}-cifar10-vgg11-msgd", _DEEP), _CURVES_TOO),
    _tradeoff(
        "resnet18-adam",
        Tradeoff("resnet18-cifar-10-adam-s3nn", f"{_SCORES}-cifar10-resnet18-adam", _DEEP),
        _CURVES_TOO,
    ),
    _tradeoff("resnet18-msgd", _RESNET18_SGD, _CURVES_TOO),
    _tradeoff("resnet18-cifar100-adam", _CIFAR_100, _CURVES_TOO),
    _tradeoff(
        "cnn7-triangle",
        Tradeoff("cnn7-fashion-mnist-adam-triangle", f"{_SCORES}-triangle", _THREE),
        _CURVES,
        "B",
        ", triangle surrogate",
    ),
    _tradeoff(
        "cnn7-sigmoid",
        Tradeoff("cnn7-fashion-mnist-adam-sigmoid", f"{_SCORES}-sigmoid", _THREE),
        _CURVES,
        "C",
        ", scaled-sigmoid surrogate",
    ),
    NamedExperiment(
        "conversion",
        "comparison with conversion, CNN7 / Fashion-MNIST / Adam",
        (_CURVES, f"{_SCORES}-ann2snn"),
        Conversion(_CNN7, f"{_SCORES}-ann2snn"),
        "D",
    ),
    NamedExperiment("training-time", "training time with each penalty", ("tbl:training-time",), TrainingTime()),
    NamedExperiment("auc", "how AUC(P) is taken", ("fig:auc",), Area(full=_RESNET18_SGD, small=_CNN7)),
    NamedExperiment("architectures", "the networks", ("tbl:network-architecture",), Architectures()),
    NamedExperiment("hyperparameters", "the hyper-parameters", ("tbl:hyperparameter",), Hyperparameters()),
)

EXPERIMENTS = MappingProxyType({experiment.name: experiment for experiment in _ALL})


def printed_scores(found: RunGroup) -> dict[str, dict[str, float]]:
    """Return the scores that the paper prints for a setting.

    Args:
        found: Runs of one network, data set, optimizer and surrogate.

    Returns:
        Scores by the label of the curve; nothing where the paper has no such setting.
    """
    same = (e.experiment for e in _ALL if isinstance(e.experiment, Tradeoff) and e.experiment.has_setting(found))
    return next((published.scores(experiment.label) for experiment in same), {})


def find(name: str) -> NamedExperiment:
    """Find an experiment by its name.

    Args:
        name: A key of `EXPERIMENTS`.

    Returns:
        The experiment.

    Raises:
        PicojouleError: If there is none; the message names the nearest.

    >>> find("totals").title
    'total penalty terms'
    """
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
