"""Training: one loop for every recipe.

    L = mean over the batch of [ CE + λ(e)·Ω ] + coupled weight decay,   λ(e) = strength · (e + 1)/E (schedule "linear")

or, where the recipe has a budget, the strength that `budget` finds from batch to batch; with the learning rate
½·lr·(1 + cos(πe/E)) in epoch e = 0 … E−1 (`learning_rate`). The result is that of the last epoch; penalty and energy
are taken on the spikes before dropout. On Lightning Fabric: CPU, CUDA or MPS, one device or several.

`fit` starts a run, `setup` builds its network, `loop` trains it, `objective` is its loss, `checkpoints` what it resumes
from; `reporters` and `display` show how it goes, and `budget` holds all that a run with an energy budget adds. Training
loops of one's own take budgets, guards and strengths from `any_loop`, or from `lightning` as a callback.

A run writes a checkpoint every epoch and when it is told to stop (SIGINT, SIGTERM); the same call resumes it and, on
CPU, ends with the same bits as a run that was never disturbed.
"""
