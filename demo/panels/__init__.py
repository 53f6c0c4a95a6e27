"""The panels, in the order of the navigation."""

from demo.panel import Panel
from demo.panels.compare import Compare
from demo.panels.gene import Gene
from demo.panels.inside import Inside
from demo.panels.predict import Predict
from demo.panels.start import Start
from demo.panels.variant import VariantEffect
from demo.panels.write import Write

PANELS: tuple[type[Panel], ...] = (
    Start,
    VariantEffect,
    Gene,
    Write,
    Inside,
    Predict,
    Compare,
)
