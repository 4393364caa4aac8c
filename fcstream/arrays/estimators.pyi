from collections.abc import Sequence
from typing import Any, Literal, Self

from ..noise.samplers import Noise
from ..releases.clusters.oracles import Oracle
from .arguments import Bounds

class PrivateEstimator:
    value_: Any
    sigma_: Any
    answer_: Any
    status_: str
    reason_: str | None
    n_features_in_: int
    feature_names_in_: Any
    def fit(self, X: Any, y: Any = None) -> Self: ...
    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
    def set_params(self, **parameters: Any) -> Self: ...
    def __sklearn_tags__(self) -> Any: ...

class PrivateMean(PrivateEstimator):
    def __init__(
        self,
        *,
        radius: float | Literal["search"] | None | None = None,
        rho: float | None = None,
        delta: float = 0.0,
        size_hint: int | None | None = None,
        spread: float | Literal["histogram"] = "histogram",
        center: Sequence[float] | None = None,
        radius_min: float | None = None,
        radius_max: float | None = None,
        outliers: float | Literal["clip", "leave_out"] | None = None,
        scale: Literal["learned"] | None = None,
        method: Literal["recentered", "friendly", "ball"] = "recentered",
        step: float | None = None,
        bounds: Bounds | None = None,
        names: Sequence[str] | None = None,
        noise: Noise | None = None,
    ) -> None: ...

class PrivateCenters(PrivateEstimator):
    cluster_centers_: Any
    def __init__(
        self,
        *,
        k: int | Literal["auto"] | None = None,
        rho: float | None = None,
        delta: float = 0.0,
        size_hint: int | None = None,
        ball: float | None = None,
        center: Sequence[float] | None = None,
        oracle: str | Oracle = "auto",
        radius: float | str = "histogram",
        radius_min: float | None = None,
        tuples: int | None = None,
        variant: Literal["paper"] | None = None,
        spread: float | None = None,
        fallback: str | None = None,
        fallback_share: float = 0.1,
        method: Literal["auto", "tree", "friendly", "ktuples"] = "auto",
        step: float | None = None,
        bounds: Bounds | None = None,
        names: Sequence[str] | None = None,
        noise: Noise | None = None,
    ) -> None: ...

class PrivateCovariance(PrivateEstimator):
    covariance_: Any
    def __init__(
        self,
        *,
        rho: float | None = None,
        size_hint: int | None = None,
        scale: Literal["learned"] | None = "learned",
        components: int | None = None,
        target: int | None = None,
        epsilon: float | None = None,
        delta: float = 0.0,
        shards: int | None = None,
        centered: bool = True,
        limit: float = 0.1,
        eta: float | None = None,
        method: Literal["clipped", "friendly"] = "clipped",
        step: float | None = None,
        bounds: Bounds | None = None,
        names: Sequence[str] | None = None,
        noise: Noise | None = None,
    ) -> None: ...
