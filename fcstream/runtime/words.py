"""Numbers of things in the sentences of messages."""


def many(number: int, thing: str) -> str:
    """Return a number of things, ``1 window`` or ``2 windows``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def were(number: int) -> str:
    """Return the verb of so many things."""
    return "was" if number == 1 else "were"
