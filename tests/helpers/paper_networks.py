"""The paper's three networks: what is promised of each of them is not promised of every network of the zoo."""

import pytest

PAPERS = ("cnn7", "vgg11", "resnet18")

SMALLEST_FIRST = [pytest.param(name, marks=() if name == "cnn7" else pytest.mark.slow, id=name) for name in PAPERS]
"""For tests of which the fast ones have one network, and all tests the three."""
