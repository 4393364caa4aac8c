"""Releases of data frames: the mean temperature of two halls in every half hour.

A type checker and an editor know the keys of every section; `fcstream.sections` has them all. This is a simulation, so
nothing keeps what it spends: real data have ``ledger="halls.db"``, or a database.
"""

import numpy as np
import polars as pl

from fcstream import Stream
from fcstream.sections import Budget, Feature, Lattice, Mean, Records, Window

START = 1767225600000  # 2026-01-01T00:00:00Z, in milliseconds since 1970


def halls() -> Stream:
    """The configuration, in the sections and the words of a file."""
    return Stream(
        Records(name="halls", key="hall", keys=["north", "south"]),
        lattice=Lattice(step=0.001),
        features=[Feature(name="temp_c", min=-40.0, max=85.0, origin=20.0)],
        window=Window(length="30m", start="2026-01-01T00:00:00Z", end="2026-01-01T03:00:00Z"),
        release=Mean(radius=3.0, rho=0.25, delta=1e-9, size_hint=800),
        budget=Budget(rho=0.25, delta=1e-6),
        ledger=None,
    )


def readings(hours: float = 2.5, seed: int = 1) -> pl.DataFrame:
    """A reading a second, of one of the two halls; the south is warmer."""
    rng, n = np.random.default_rng(seed), round(3600 * hours)
    hall = rng.choice(["north", "south"], n)
    return pl.DataFrame(
        {
            "ts_ms": START + 1000 * np.arange(n),
            "hall": hall,
            "temp_c": rng.normal(20.0, 0.3, n) + (hall == "south"),
        }
    )


def main() -> None:
    stream = halls()
    frame = stream.run(readings())
    print(frame.pivot("key", index="window_open", values="value").with_columns(pl.col("north", "south").round(1)))
    print({release.reason for release in stream.releases if release.reason})


if __name__ == "__main__":
    main()
