"""The values of devices, from a file that may grow while the devices answer."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import SourceError
from ..spaces import Space
from .components import Component

LOG = logging.getLogger("fcstream.local")


class DeviceValues:
    """The values of devices, from a file of JSON lines ``{"device": NAME, COMPONENT: VALUE, ...}``.

    New values come as new components, named like ``place@10:00``: when a component is queried that was not in the file
    and the file has changed, it is read again. A missing value is answered like a public one, so that a reply
    does not show that it is missing.
    """

    def __init__(self, path: str, spaces: Mapping[str, Space]) -> None:
        self._path, self._spaces, self._changed = path, spaces, 0
        self.known: dict[str, dict[str, Any]] = {}
        self._read()

    def _read(self) -> None:
        try:
            changed = os.stat(self._path).st_mtime_ns
            if changed == self._changed:
                return
            self._changed = changed
            with open(self._path, "rb") as file:
                for number, line in enumerate(file, 1):
                    self._take(number, line)
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read: {error.strerror}") from None

    def _take(self, number: int, line: bytes) -> None:
        try:
            found = json.loads(line)
            name = found.pop("device")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            found = name = None
        if not isinstance(name, str):
            raise SourceError(f"line {number} must be an object with a `device`", where=self._path)
        self.known.setdefault(name, {}).update(found)

    def of(self, device: str) -> Callable[[str], Component | None]:
        """Finds the components of one device by name."""

        def introduce(component: str) -> Component | None:
            space = self._spaces.get(component.partition("@")[0])
            if space is None:
                return None
            if component not in self.known.get(device, {}):
                try:
                    self._read()
                except SourceError as error:  # perhaps half written; the reply must not show that a value is missing
                    LOG.warning("%s", error)
            return Component(space, self.known.get(device, {}).get(component))

        return introduce
