"""Devices that hold their own budget and reply with noise, and the analyst who asks them: no service sees raw values.

Here belong questions and replies, the spaces of values, the device with its journal, the answers computed from many
replies, and simulations. Streams, whose records one service collects, are in the other packages. The device's side
needs numpy only, so public names are imported when first used.
"""

from ..runtime.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__)


def __dir__() -> list[str]:
    return list(__all__)
