"""Made-up telemetry of a fleet: rooms with drifting, bursting, stuck, wild, late and broken sensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class SensorFleet:
    """A seeded fleet of sensors. The same parameters give the same lines, byte for byte.

    Parameters
    ----------
    devices : int
    start_ms : int
        Unix milliseconds.
    duration_ms : int
    interval_ms : int
        Time between two readings of one device; 50 devices every 50 s make 600 records in 10 minutes.
    seed : int
    faults : float
        Probability that a reading has each kind of fault (late, duplicate, wild, malformed); a tenth of it for a
        device to get stuck, or to burst.
    """

    devices: int = 50
    start_ms: int = 1_458_000_000_000  # 2016-03-15T00:00:00Z
    duration_ms: int = 86_400_000
    interval_ms: int = 50_000
    seed: int = 1
    faults: float = 0.004

    def __post_init__(self) -> None:
        if self.devices < 1 or self.interval_ms < 1 or self.duration_ms < 1:
            raise ConfigError("devices, interval and duration must be positive", "simulate")
        if self.seed < 0 or self.devices > 10**6:
            raise ConfigError("seed must not be negative, and devices at most a million", "simulate")
        if not 0 <= self.faults <= 0.2:
            raise ConfigError("must be in [0, 0.2]", "faults", got=self.faults)

    def lines(self) -> Iterator[str]:
        """Yield JSON lines in order of arrival."""
        rng = np.random.Generator(np.random.PCG64(self.seed))
        offsets = rng.normal(0, 0.4, self.devices)
        phases = rng.integers(0, self.interval_ms, self.devices)
        drifts = rng.normal(0, 0.3, self.devices)  # degrees a day
        stuck: dict[int, tuple[int, str]] = {}
        waiting: list[tuple[int, str]] = []
        for round_start in range(0, self.duration_ms, self.interval_ms):
            readings: list[tuple[int, str]] = []
            chances = rng.random((self.devices, 6))
            noises = rng.normal(0, 1, (self.devices, 3))
            for device in range(self.devices):
                since = round_start + int(phases[device])
                if since >= self.duration_ms:
                    continue
                day = since / 86_400_000
                base = 20 + 1.5 * math.sin(2 * math.pi * (day - 0.3)) + offsets[device] + drifts[device] * day
                line = self._reading(device, since, base, noises[device])
                if device in stuck and stuck[device][0] > since:
                    line = self._line(device, since, stuck[device][1])
                elif chances[device, 4] < self.faults / 10:
                    stuck[device] = (since + 40 * self.interval_ms, self._fields(base, noises[device]))
                self._spoil(device, since, line, chances[device], readings, waiting)
                if chances[device, 5] < self.faults / 10:  # a burst: twenty readings within a second
                    for k in range(20):
                        readings.append((since + 50 * k, self._reading(device, since + 50 * k, base, noises[device])))
            waiting += readings
            waiting.sort(key=lambda entry: entry[0])
            horizon = round_start + self.interval_ms
            while waiting and waiting[0][0] < horizon:
                yield waiting.pop(0)[1]
        for _, line in waiting:
            yield line

    def _spoil(
        self,
        device: int,
        since: int,
        line: str,
        chance: object,
        now: list[tuple[int, str]],
        later: list[tuple[int, str]],
    ) -> None:
        late, twice, wild, broken = (float(c) < self.faults for c in chance[:4])  # type: ignore[index]
        if wild:
            line = self._line(device, since, '"temp_c": 85.0, "rh_pct": 0.0, "light_lx": 0.0')
        if broken:
            text = re.sub(r'"temp_c": [-0-9.]+', '"temp_c": "n/a"', line)
            line = (line[: len(line) // 2], text, line.replace("{", '{"rh_pct": NaN, '))[since % 3]
        (later if late else now).append((since + (400_000 if late else 0), line))
        if twice:
            now.append((since + 1, line))

    def _reading(self, device: int, since: int, base: float, noise: object) -> str:
        return self._line(device, since, self._fields(base, noise))

    def _line(self, device: int, since: int, fields: str) -> str:
        return f'{{"ts_ms": {self.start_ms + since}, "device": {json.dumps(f"room-{device:03d}")}, {fields}}}'

    @staticmethod
    def _fields(base: float, noise: object) -> str:
        a, b, c = (float(x) for x in noise)  # type: ignore[attr-defined]
        humidity = 45 - 2 * (base - 20) + 1.5 * b
        return f'"temp_c": {base + 0.3 * a:.2f}, "rh_pct": {humidity:.1f}, "light_lx": {math.exp(5 + 0.5 * c):.0f}'
