"""What a network spends: the meter, its report, price lists of hardware, units of energy."""
