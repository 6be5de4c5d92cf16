"""`python -m picojoule` is the command `picojoule`."""

from picojoule.cli import main

main()
