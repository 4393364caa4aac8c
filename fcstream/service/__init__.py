"""Service: a process that runs live streams, and that operators can start, watch and reload.

Here belong the application behind ``fcstream run``, the supervisor that starts a new session after an error, one
session with a broker, and what operators see of it: HTTP status, metrics, logs, health, systemd, ``doctor`` and
``check``. What a record or a window means is in `fcstream.engine`; how a broker is asked is in `fcstream.connectors`.

Files, top to bottom: `app` and `build` (the process and its parts), `supervisor` and `session` (a live stream),
`context` (what outlives a session), `publisher` (releases to the sink), `batch` (a job over files), `status`
(``/live``, ``/ready``, ``/metrics``), `page` (what browsers see), `metrics`, `health`, `logs`, `systemd`, `signals`,
`reload`, `leases`, `clocks`, `gaps`, `alarms`, `doctor`, `checking`.
"""
