"""Numbers of things, and lengths of time, in the sentences of messages."""


def many(number: int, noun: str) -> str:
    """Return a number of things, ``1 window`` or ``2 windows``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def were(number: int) -> str:
    """Return the verb of so many things."""
    return "was" if number == 1 else "were"


def duration(ms: int) -> str:
    """Write a length of time in its largest whole unit, as configurations do: ``90m``, ``1d``."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"
