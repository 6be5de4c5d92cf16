"""Event-driven convolutions for training: layers that touch only what their active inputs reach.

Nothing here needs Numba to be imported except the modules that compile: those below `layers` and `calibration`.
"""
