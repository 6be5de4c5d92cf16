"""Training to an energy budget: controller of the strength, selection of the best network, batch-norm statistics."""
