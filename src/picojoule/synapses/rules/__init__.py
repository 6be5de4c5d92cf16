"""Rules: what each operation does to connections, as the structural pass reads it.

Three kinds of operation matter between a spike and the neuron that receives it.

* **Synaptic** operations (`synaptic`) multiply activations by weights. Their rule gives, for every element of the
  input, the number of synapses that it feeds. A bias is not a synapse; a weight removed by a pruning mask is not one
  either.
* **Passing** operations (`passing`) carry values on: pools, reshapes, sums, skips. Their rule computes an output whose
  derivative with respect to the input is the number of *connections*: 1 where the real derivative is 1/k² (an average
  pool), 1 where it is some learnt scale (batch norm), unchanged where the operation only moves or adds values.
* **Bilinear** operations (`bilinear`) multiply two activations, as attention does. Each spike of one operand costs as
  many operations as it reaches values, or spikes, of the other.

At a network's end `readout` has those that cost nothing. Any other operation is refused when it stands between a spike
and a synapse. A further rule is given to one
call of `picojoule.trace`, or declared for the whole process with `declare_rule`:

>>> import torch, picojoule as pj
>>> class Net(torch.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.spike, self.head = pj.declare_spiking(torch.nn.Identity()), torch.nn.Linear(4, 3)
...
...     def forward(self, x):
...         return self.head(torch.nn.functional.hardtanh(self.spike(x)))
>>> pj.trace(Net(), torch.zeros(1, 4), rules={"hardtanh": pj.rules.identity}).synapses
12
"""

from picojoule.synapses.rules.call import Call, ChainsOfLayers, Psi
from picojoule.synapses.rules.declared import declare_rule
from picojoule.synapses.rules.passing import PASSING, identity, natural

__all__ = ["PASSING", "Call", "ChainsOfLayers", "Psi", "declare_rule", "identity", "natural"]
