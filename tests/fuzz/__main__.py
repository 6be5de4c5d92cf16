"""Run many cases, `python -m fuzz --cases 10000 --seed 0`, or one again, `python -m fuzz --kind networks --only 7`.

Progress goes to standard error, failures and the summary to standard output; the exit status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path

import torch

from fuzz.cases import KINDS, Case, drawn_case
from fuzz.journal import Journal
from fuzz.outcome import Outcome
from fuzz.summary import summary
from fuzz.workers import Worker, run_all, serve


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the others follow")
    parser.add_argument("--kind", choices=list(KINDS), help="only cases of this kind")
    parser.add_argument("--only", type=int, help="only the case with this seed, in this process (needs --kind)")
    parser.add_argument("--workers", type=int, default=2, help="how many processes")
    parser.add_argument("--journal", type=Path, help="a file that keeps what is done: started again, the rest is run")
    parser.add_argument("--shown", type=int, default=3, help="how many cases of each failure are shown")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return 0
    if given.only is not None:
        if given.kind is None:
            parser.error("--only needs --kind")
        return alone(Case(given.kind, given.only))
    seeds = range(given.seed, given.seed + given.cases)
    return together([Case(given.kind, seed) if given.kind else drawn_case(seed) for seed in seeds], given)


def alone(case: Case) -> int:
    """One case in this process, where a debugger reaches it."""
    torch.set_num_threads(1)
    print(case.described)
    outcome = case.run()
    print(summary([(case, outcome)], Case.smallest, shown=1))
    return bool(outcome.failures)


def together(cases: list[Case], given: argparse.Namespace) -> int:
    journal = Journal(given.journal)
    done = [(case, journal.known[case]) for case in cases if case in journal.known]
    rest = [case for case in cases if case not in journal.known]
    progress = Progress(len(rest))

    def finished(case: Case, outcome: Outcome) -> None:
        done.append((case, outcome))
        journal.add(case, outcome)
        progress.show(case, outcome)

    with contextlib.suppress(KeyboardInterrupt):  # what is done is told all the same
        run_all(rest, given.workers, finished)
    worker = Worker()
    try:
        print(summary(sorted(done, key=lambda entry: entry[0].seed), worker.smallest, given.shown))
    finally:
        worker.close()
    return int(len(done) < len(cases) or any(outcome.failures for _, outcome in done))


class Progress:
    """Failures as they come, and every ten seconds how far it is."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.count = self.failed = 0
        self.start = self.last = time.monotonic()

    def show(self, case: Case, outcome: Outcome) -> None:
        self.count += 1
        self.failed += bool(outcome.failures)
        for name, details in outcome.failures:
            print(f"{case.kind} {case.seed}: {name}: {details}", file=sys.stderr, flush=True)
        if time.monotonic() - self.last > 10 or self.count == self.total:
            self.last = time.monotonic()
            rate = self.count / (self.last - self.start)
            print(f"{self.count}/{self.total} cases, {self.failed} failed, {rate:.1f} per second", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
