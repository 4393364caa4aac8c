"""A stream that never ends, as a process that others can run and watch.

Here: the command's application, the supervisor that starts over, one session with a broker, reloads, metrics, logs,
health, systemd, `doctor` and `check`. Not here: what a record or a window means (`fcstream.engine`).
"""
