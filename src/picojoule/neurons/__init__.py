"""Neurons and what they are made of: thresholds, membranes, surrogate gradients, time steps."""
