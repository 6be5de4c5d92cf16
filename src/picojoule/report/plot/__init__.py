"""Pictures of a watched network: who fires when, where the energy goes, and how near the threshold the potentials are.

Each takes what `picojoule.watch` recorded, of any framework's network, and returns an Altair chart: shown as it is in a
notebook, and saved by `save` as SVG, PDF and PNG.
"""

from picojoule.report.pictures import save
from picojoule.report.plot.map_charts import energy_maps, rate_maps
from picojoule.report.plot.potentials_chart import Potentials, potentials, watch_potentials
from picojoule.report.plot.raster_chart import raster
from picojoule.report.plot.rates_chart import rates

__all__ = ["Potentials", "energy_maps", "potentials", "raster", "rate_maps", "rates", "save", "watch_potentials"]
