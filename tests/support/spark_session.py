"""One local session of Spark for all its tests."""

import os
import sys

import numpy as np
import pytest

from fcstream.config import Config
from fcstream.errors import ConfigError
from fcstream.ledgers import each_reader
from fcstream.spark.blocks import cut
from fcstream.spark.sessions import require_pyspark
from fcstream.spark.tasks import admitted
from support.helpers import sample

try:
    require_pyspark()
    HAS_SPARK = True
except ConfigError:
    HAS_SPARK = False
if not HAS_SPARK and os.environ.get("FCSTREAM_REQUIRE_SPARK") == "1":
    pytest.fail("the extra 'spark' is not installed", pytrace=False)
needs_spark = pytest.mark.skipif(not HAS_SPARK, reason="the extra 'spark' is not installed")
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.warehouse.dir": "/nonexistent",
    "spark.sql.files.maxPartitionBytes": "100000",
    "spark.ui.showConsoleProgress": "false",
    # Little data: compiling queries, and Java itself, to the last would cost more than it gains.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def session():
    if not HAS_SPARK:
        pytest.skip("the extra 'spark' is not installed")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2,4]").appName("fcstream tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


def config_of(**sections):
    release, features = sections.pop("release", {}), sections.pop("features", None)
    mapping = sample(**sections)
    mapping["features"] = features or mapping["features"]
    if isinstance(release, list):
        mapping["release"] = release
    elif "kind" in release:
        mapping["release"] = {name: value for name, value in release.items() if value is not None}
    else:
        mapping["release"] = {k: v for k, v in {**mapping["release"], **release}.items() if v is not None}
    return Config.from_mapping(mapping)


def blocks_of(job, batch, partition="p"):
    codes = np.zeros(len(batch.times_ms), np.int64)
    return cut(partition, batch, admitted(job, batch, None), codes, [0], job.texts)


def live(url="redis://127.0.0.1/0?stream=x", **sections):
    return config_of(
        window={"clock": "broker", "end": None, "lateness": "1s"},
        source={"url": url},
        sink={"url": "jsonl:-"},
        **{"spark": {"checkpoint": "/nonexistent"}, **sections},
    )


def point(rng, i):
    """Most lie together; some have as many friends as the bar asks for, so that coins decide about them."""
    a, b = rng.normal(size=2) * [0.3, 0.6] + [20.5, 49.0]
    return (a + rng.uniform(2.4, 3.6), b) if i % 9 == 0 else (a, b)


def spent(ledger):
    return sum(row.kind == "charge" for reader in each_reader(ledger) for row in reader.rows())
