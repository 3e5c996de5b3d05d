"""Pictures of recorded attention weights (terminal, SVG, HTML), and HTML reports."""

from regard.render.image_view import ImageView
from regard.render.view import AttentionView
from regard.render.view_data import Frame, Layer

__all__ = ["AttentionView", "Frame", "ImageView", "Layer"]
