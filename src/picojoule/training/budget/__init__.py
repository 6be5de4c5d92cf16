"""Training to an energy budget: the strength of the penalty is found in the run itself, so that it ends at the budget.

A recipe with `penalty.budget` (a share of the unpenalised energy, or joules) has no strength of its own. The problem is
min CE subject to E ≤ target, and this folder holds all that such a run does beyond an ordinary one:

* `control_law`: λ as a multiplier. It knows numbers only: given the energy seen so far, which λ has the next batch?
* `controller`: its place in the run. It shows a fixed sample of images to the network every few batches, measures the
  energy on validation images, passes both to the law, and takes the chosen network at the end.
* `batch_norm`: statistics for both: a look at the network that leaves no trace, and running averages of the network as
  it is now, so that the network that is judged is the one that was controlled.
* `guard`: a floor under the firing rate of every layer, so that no strength silences one.
* `recovery`: for a guarded run, the last good weights, to which it goes back with a lower strength.
* `selection`: the network that the run returns: the last one if it meets the budget, else the best one before it.

In the loop of an epoch: after each batch `BudgetController.after_batch` updates λ; at the end of the epoch
`refresh_batch_norm`, an ordinary evaluation on the validation images, and `after_epoch`, which offers the network to
the selection; at the end of the run `finish`. Law, selection and guard have `state_dict`s, which checkpoints store.
"""
