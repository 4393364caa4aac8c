"""What several test modules need: builders of configurations, slow twins, servers of their own, proxies."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
