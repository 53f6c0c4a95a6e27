"""The panels, in the order of the navigation."""

from demo.panel import Panel
from demo.panels.compare import Compare
from demo.panels.design import Design
from demo.panels.embeddings import Embeddings
from demo.panels.generate import Generate
from demo.panels.predict import Predict
from demo.panels.primer import Primer
from demo.panels.read import Read
from demo.panels.token import Token
from demo.panels.tokenizer import Tokenizer
from demo.panels.training import Training
from demo.panels.variant import VariantEffect

PANELS: tuple[type[Panel], ...] = (
    Primer,
    Generate,
    Read,
    VariantEffect,
    Compare,
    Token,
    Tokenizer,
    Training,
    Embeddings,
    Predict,
    Design,
)
# The primer links to all other panels, and cannot import its siblings.
Primer.others = PANELS[1:]
