"""What a head is: the output layer that reads the features of a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from regard.config import set_sizes

if TYPE_CHECKING:
    from regard.models.facts import Facts


class HeadConfig(Protocol):
    """The settings of a head: a frozen dataclass. A config may inherit from this class to get the defaults.

    The module that `build` makes maps features (B, T, width) and `real` (B, T), or None, to logits.
    """

    @property
    def predicts(self) -> str:
        """What the head predicts: the `head` of the tasks that it serves."""

    @property
    def sizes(self) -> Mapping[str, str]:
        """The settings that follow from the data: the name of each, and the field whose size it has."""
        return {}

    @property
    def one_per_text(self) -> bool:
        """Whether the head makes one prediction per text, and not one per token."""
        return False

    @property
    def init_from(self) -> Mapping[str, str]:
        """Modules of a model without this head whose weights the head starts from: their paths, and those here."""
        return {}

    def for_body(self, body: Facts) -> Self:
        """The settings with the values that depend on the body filled in."""
        return self

    def with_sizes(self, sizes: Mapping[str, int], padded: bool = False) -> Self:
        """The settings with the sizes of the fields, see `regard.config.set_sizes`."""
        return set_sizes(self, self.sizes, sizes, padded, "head")

    def build(self, body: Facts) -> Any:
        """The head of a body, with new weights."""
