"""Networks of other frameworks: which of their modules fire, and where the time steps are in what they emit.

`picojoule.trace`, `watch`, `Penalty` and `EnergyMeter` take them unchanged. A module is recognised by the package and
the name of its class or of its nearest known base, so no framework is ever imported from here.

>>> [framework.name for framework in FRAMEWORKS]
['SpikingJelly', 'snnTorch', 'Norse', 'sinabs']
>>> kind_of(nn.Linear(2, 2)) is None
True
"""

from __future__ import annotations

from torch import nn

from picojoule.spikes.frameworks.kinds import Fires, Framework, Inside, Kind, Refused, Silent
from picojoule.spikes.frameworks.norse import NORSE
from picojoule.spikes.frameworks.sinabs import SINABS
from picojoule.spikes.frameworks.snntorch import SNNTORCH
from picojoule.spikes.frameworks.spikingjelly import SPIKINGJELLY

FRAMEWORKS = (SPIKINGJELLY, SNNTORCH, NORSE, SINABS)
_BY_PACKAGE = {framework.package: framework for framework in FRAMEWORKS}

__all__ = [
    "FRAMEWORKS",
    "Fires",
    "Framework",
    "Inside",
    "Kind",
    "Refused",
    "Silent",
    "framework_of",
    "kind_of",
    "spare_modules",
]


def kind_of(module: nn.Module) -> Kind | None:
    """Return what is known of a module of another framework.

    Args:
        module: Any module.

    Returns:
        Whether it fires, is silent or is refused; None if it is of no framework, or nothing needs to be known.

    >>> kind_of(nn.ReLU()) is None
    True
    """
    known = _known(module)
    if known is None:
        return None
    framework, name = known
    kind = framework.kinds[name]
    return kind if isinstance(kind, Fires | Silent | Refused) else kind(module)


def framework_of(module: nn.Module) -> Framework | None:
    """Return the framework whose class the module is, or is derived from.

    Args:
        module: Any module.

    Returns:
        The framework; None if there is none.

    >>> framework_of(nn.ReLU()) is None
    True
    """
    known = _known(module)
    return None if known is None else known[0]


def spare_modules(model: nn.Module) -> set[nn.Module]:
    """List the modules that classes of a framework keep beside those that they run.

    Args:
        model: The network.

    Returns:
        Modules that no forward pass calls, with all their parts.

    >>> spare_modules(nn.Linear(2, 2))
    set()
    """
    found: set[nn.Module] = set()
    for module in model.modules():
        framework = _BY_PACKAGE.get(type(module).__module__.partition(".")[0])
        spare = getattr(module, framework.spare.get(type(module).__name__, ""), None) if framework is not None else None
        found.update(spare.modules() if isinstance(spare, nn.Module) else ())
    return found


def _known(module: nn.Module) -> tuple[Framework, str] | None:
    """Return the framework and the name of the nearest known class of a module."""
    for cls in type(module).__mro__:
        framework = _BY_PACKAGE.get(cls.__module__.partition(".")[0])
        if framework is not None and cls.__name__ in framework.kinds:
            return framework, cls.__name__
    return None
