"""The panels, in the order of the navigation."""

from demo.panel import Panel
from demo.panels.compare import Compare
from demo.panels.design import Design
from demo.panels.generate import Generate
from demo.panels.predict import Predict
from demo.panels.read import Read
from demo.panels.start import Start
from demo.panels.token import Token
from demo.panels.tokenizer import Tokenizer
from demo.panels.training import Training
from demo.panels.variant import VariantEffect

PANELS: tuple[type[Panel], ...] = (
    Start,
    VariantEffect,
    Read,
    Generate,
    Token,
    Tokenizer,
    Training,
    Design,
    Predict,
    Compare,
)
