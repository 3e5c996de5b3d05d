"""Looking: recorded weights drawn in the terminal, as SVG, as one HTML file; the report of a run."""

from regard.view.parts import Frame, Layer
from regard.view.view import AttentionView

__all__ = ["AttentionView", "Frame", "Layer"]
