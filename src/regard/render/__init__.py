"""Looking: recorded weights drawn in the terminal, as SVG, as one HTML file; the report of a run."""

from regard.render.parts import Frame, Layer
from regard.render.view import AttentionView

__all__ = ["AttentionView", "Frame", "Layer"]
