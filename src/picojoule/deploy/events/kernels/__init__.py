"""The kernels of the event engine, compiled to machine code by Numba.

`execute` runs a program (`program`) on images with no Python in between. A layer of synapses is three loops: list what
is active, pixel by pixel and step by step; list for each output pixel the rows of weights under its window; and for
each block of output channels add those rows up in registers, where potentials stay from one step to the next. Silence
is in no list, and an output pixel that nothing reaches is not computed.
"""

from picojoule.deploy.events.kernels.interpreter import execute

__all__ = ["execute"]
