"""What runs say to people: tables, figures and pages made from their results."""

from picojoule.report.comparison import Comparison

__all__ = ["Comparison"]
