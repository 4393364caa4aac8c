"""A stream that never ends, as a process that others can start, watch and reload.

Here belong the application behind ``fcstream run``, the supervisor that starts over when something breaks, one
session with a broker, and how the outside sees it: HTTP status, metrics, logs, health, systemd, ``doctor`` and
``check``. What a record or a window means is in `fcstream.engine`; how a broker is asked is in `fcstream.connectors`.

Files, top to bottom: `app` and `build` (the process and its parts), `supervisor` and `session` (a live stream), `batch`
(a job over files), `status` (``/live``, ``/ready``, ``/metrics``), `metrics`, `health`, `logs`, `systemd`, `signals`,
`reload`, `leases`, `clocks`, `gaps`, `alarms`, `doctor`, `checking`.
"""
