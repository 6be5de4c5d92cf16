"""Energy that a network spends: the meter, its report, price lists of hardware, units."""
