"""Many runs: sweeps, the frontier of one network, the pick among trained ones, scores of a trade-off."""
