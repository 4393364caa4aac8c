"""The session of Spark is a fixture for these files alone: the others run without it."""

from support.spark_session import session  # noqa: F401
