"""Many runs: sweeps, the frontier of one network, the choice among trained ones, scores of a trade-off curve."""
