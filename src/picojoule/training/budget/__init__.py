"""Training to an energy budget: the controller of the strength, the selection of the network that is kept, batch-norm statistics."""
