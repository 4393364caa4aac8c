"""Releases as documents, made without an engine."""

from fcstream import Release

HOUR = 3_600_000


def release(k, value, sigma=None, kind="mean", reason=None, **more):
    facts = {"stream": "s", "window_open_ms": k * HOUR, "window_close_ms": (k + 1) * HOUR, "reason": reason}
    facts |= {"status": "refused" if reason else "released", "kind": kind, "value": value, "sigma": sigma}
    facts |= {"count": 5, "core_count": None, "rho": 0.5, "delta": 1e-9, "private": True}
    facts |= {"guarantee": {"rho": 2.0, "delta": 1e-6}, "spent": {"rho": 0.5, "delta": 1e-9}}
    return Release(**facts | more)


def refused(k, reason="too_few", **more):
    return release(k, None, None, reason=reason, **more)


def lines_of(*releases):
    return [one.to_bytes() + b"\n" for one in releases]
