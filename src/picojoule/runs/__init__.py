"""A run on disk: its folder, checkpoints, typed result and metrics; evaluating it and answering pictures with it.

`folder` has `Run` and finds runs below a folder; `result` and `metrics` are the only places that read, check and write
`result.json` and `metrics.jsonl`, and `pack` makes one file of many runs; `model` builds a recipe's network and loads
its weights; `evaluate` and `infer` (by one of `engines`) use it; `verdict` says how a run with a budget ended.
"""
