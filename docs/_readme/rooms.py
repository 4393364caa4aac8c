"""Draws README's picture from a real run: `python docs/_readme/rooms.py >docs/_readme/rooms.svg`.

It is written without a drawing library and with seeded noise, so that it is the same everywhere and a test can compare
it.
"""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fcstream import Engine, Noise, Release, SeededEntropy
from fcstream.cli.templates import template
from fcstream.planning.simulation import SensorFleet

NAME = "A day of readings, some of them broken; their plain means, and the private means that fcstream publishes."
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f;stroke:none}.small{font-size:11px;fill:#808080}"
    "path{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}.axis{stroke:#80808080;stroke-width:1}"
    ".dots{stroke-width:2.4}.normal{stroke:#8a9099}path.plain{stroke:#c4501b}path.private{stroke:#1b6ca8}"
    "text.plain{fill:#c4501b}text.private{fill:#1b6ca8}"
    "@media(prefers-color-scheme:dark){text{fill:#d4d8dd}path.plain{stroke:#ff9b6a}path.private{stroke:#6cb6ff}"
    "text.plain{fill:#ff9b6a}text.private{fill:#6cb6ff}}"
)
DAY_MS, WINDOW_MS = 86_400_000, 600_000
EVERY, WILD = 70, 80.0  # of the normal readings only some are drawn
WIDTH, HEIGHT, TOP, BOTTOM = 370, 190, 44, 234


@dataclass(frozen=True)
class Panel:
    """A panel of the picture: hours of the day to the right, degrees upward."""

    left: int
    low: float
    high: float

    def frame(self, title: str, ticks: Sequence[int]) -> list[str]:
        """Draw title, axes and labels."""
        drawn = [self.text(-30, 20, title), f'<path class="axis" d="M{self.left} {TOP}V{BOTTOM}H{self.left + WIDTH}"/>']
        for value in ticks:
            drawn.append(self.text(-6, self.height(value) + 4, str(value), "small", "end"))
        drawn += [
            self.text(WIDTH * hour / 24, BOTTOM + 17, f"{hour}:00", "small", "middle") for hour in (0, 6, 12, 18, 24)
        ]
        return drawn

    def height(self, value: float) -> float:
        return BOTTOM - HEIGHT * (value - self.low) / (self.high - self.low)

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
        return f'<text class="{style}" x="{self.left + x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'

    def curve(self, times: Sequence[float], values: Sequence[float], style: str, dots: bool = False) -> str:
        """Draw a line through points, or a dot at each."""
        places = ((WIDTH * time / DAY_MS, self.height(value)) for time, value in zip(times, values, strict=True))
        points = [f"{self.left + x:.1f} {y:.1f}" for x, y in places]
        return f'<path class="{style}" d="{"".join(f"M{at}h0" for at in points) if dots else "M" + "L".join(points)}"/>'


def readings() -> np.ndarray:
    """Return time, temperature and humidity of all lines of the simulated day that are whole."""
    rows = []
    for line in SensorFleet().lines():
        try:
            record = json.loads(line)
            rows.append((record["ts_ms"] - SensorFleet().start_ms, float(record["temp_c"]), float(record["rh_pct"])))
        except ValueError:  # half a line, or a text in place of a number
            continue
    return np.array(rows)


def publish(rows: np.ndarray) -> list[Release]:
    """Release the mean of every window with the configuration that `fcstream init` writes."""
    config = tomllib.loads(template())
    config = {**config, "ledger": {"url": "memory:"}}
    del config["source"], config["sink"]
    with Engine(config, noise=Noise(SeededEntropy(1)), on_rejection=lambda rejections: None) as engine:
        engine.push(rows[:, 0].astype(np.int64) + SensorFleet().start_ms, rows[:, 1:])
        return engine.close()


def main() -> str:
    """Draw what went in and what came out."""
    rows = readings()
    releases = publish(rows)
    windows = rows[:, 0] // WINDOW_MS
    middles = [(k + 0.5) * WINDOW_MS for k in range(len(releases))]
    noise = np.median([release.sigma[0] for release in releases])
    wild, normal = rows[rows[:, 1] >= WILD], rows[rows[:, 1] < WILD][::EVERY]
    left, right = Panel(34, 0, 90), Panel(476, 17.8, 22.8)
    drawn = [
        *left.frame("what fifty rooms send: readings, some of them broken (°C)", (0, 40, 80)),
        left.curve(normal[:, 0], normal[:, 1], "dots normal", dots=True),
        left.curve(wild[:, 0], wild[:, 1], "dots plain", dots=True),
        *right.frame("what is published: one mean every ten minutes (°C)", (18, 20, 22)),
        right.curve(middles, [rows[windows == k, 1].mean() for k in range(len(releases))], "plain"),
        right.curve(middles, [release.value[0] for release in releases], "private"),
        right.text(12, TOP + 14, "plain mean: not private, and pulled up by faults", "plain"),
        right.text(84, BOTTOM - 12, f"fcstream: private, noise of {noise:.3f} °C", "private"),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="880" height="262" viewBox="0 0 880 262" aria-label="{NAME}">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *drawn, "</svg>", ""])


if __name__ == "__main__":
    print(main(), end="")
