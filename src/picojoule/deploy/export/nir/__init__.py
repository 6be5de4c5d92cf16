"""Export to NIR, the exchange format of neuromorphic chips and simulators.

A network is run once with *currents* in place of tensors: a current is the sum of what some NIR nodes put out, plus a
constant. Each operation has a short rule that adds a node and gives the current behind it:

* convolutions, linear layers, average and sum pools, means over the map, and flattening are nodes of their own;
* a batch norm directly behind one convolution or linear layer, which nothing else reads, folds into its weights and
  bias; any other becomes a `Scale` and a constant;
* a sum is no node: edges that meet at one node add up;
* constants that no bias can take travel on with the current, and the neurons subtract them from their thresholds.

`Spike` becomes `IF` with r = 1 and v_reset = 0, run for one step of length 1 from v = 0: v = I, which fires at v > θ
as NIR defines it. Ours fires at u ≥ θ, so the exported threshold is the next smaller float32. NIR's `Threshold` would
say the same without a state, but hardly any reader knows it. A max pool of spikes is a `SumPool2d` and neurons that
fire at one spike or more. Shapes in NIR have no batch axis; flattening is written with negative axes, which mean the
same with one.

What NIR cannot express is refused by name.
"""

from picojoule.deploy.export.nir.exporting import to_nir

__all__ = ["to_nir"]
