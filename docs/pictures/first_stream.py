"""A day of the rooms that `fcstream simulate` makes, as `fcstream plot` draws it."""

import json
import tomllib

import drawn
import numpy as np

from fcstream.cli.templates import template
from fcstream.planning.simulation import SensorFleet

config = tomllib.loads(template())
fleet = SensorFleet(50, 1458000000000, 86_400_000, 50_000, 1, 0.004)
records = []
for line in fleet.lines():
    try:
        record = json.loads(line)
        records.append((record["ts_ms"], float(record["temp_c"]), float(record["rh_pct"])))
    except (KeyError, TypeError, ValueError):
        pass  # broken on purpose
table = np.array(records)
drawn.releases(drawn.run(config, table[:, 0].astype(np.int64), table[:, 1:]), width=9.5)
