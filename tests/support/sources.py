"""What the tests of all connectors use: words that no error may tell, and reading until enough is there."""

import time
import traceback

from fcstream.testing import SourceContract

SECRET = "s3cretWord"
CONTENT = b"sentinelContent"


def drain(source, wanted, seconds=60.0):
    return SourceContract().drain(source, wanted, seconds)


def bodies(rows):
    return [body for *_, body in rows]


def everything(error):
    """What a log would show of an error."""
    return "".join(traceback.format_exception(error)) + repr(error.__cause__)


def until(condition, seconds=300.0):
    """What a condition gives as soon as it holds."""
    end = time.monotonic() + seconds
    while not (held := condition()):
        assert time.monotonic() < end, condition
        time.sleep(0.02)
    return held
