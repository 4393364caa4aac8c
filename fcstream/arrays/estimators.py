"""Private answers as estimators with the conventions of scikit-learn, which need not be installed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ConfigError
from ..formats.frames import columns_of
from ..noise.samplers import Noise
from ..releases.clusters.oracles import Oracle
from ..releases.statistics.covariance import LIMIT
from .approximate_dp import private_covariance
from .arguments import Bounds, rows_of
from .clusters import private_centers
from .statistics import private_mean


class PrivateEstimator:
    """What the estimators share: parameters are attributes, and `fit` asks the function of the same name.

    Subclasses are dataclasses whose fields are the function's arguments. Those that the function requires are None by
    default, as scikit-learn wants it, and `fit` refuses None: there is no harmless default for what must be public.
    """

    _function: ClassVar[Callable[..., Any]]
    _alias: ClassVar[str | None] = None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Spend the budget on one answer about the rows of `X` (n, d), an array or a data frame; `y` is ignored.

        Every call costs anew, also those that scikit-learn makes for cross-validation.

        Raises
        ------
        ConfigError
            A parameter is missing or out of range.
        """
        rows = rows_of(_dense(X), "X")
        parameters, asked = self.get_params(), inspect.signature(type(self)._function).parameters
        for name, value in parameters.items():
            if value is None and asked[name].default is inspect.Parameter.empty:
                raise ConfigError("must be given: it is public, and nothing about it is learned from the data", name)
        answer = type(self)._function(rows, **parameters)
        value = answer.value
        self.answer_ = answer
        self.value_ = None if value is None else np.array(value, np.float64)
        self.sigma_ = None if answer.sigma is None else np.array(answer.sigma, np.float64)
        self.status_: str = answer.status
        self.reason_: str | None = answer.reason
        self.n_features_in_: int = rows.width
        vars(self).pop("feature_names_in_", None)
        names = columns_of(X)
        if names is not None and names == list(getattr(X, "column_names", None) or X.columns):  # all of them texts
            self.feature_names_in_ = np.array(names, object)
        if self._alias is not None:
            setattr(self, self._alias, self.value_)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; `deep` changes nothing, since no parameter is an estimator."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def set_params(self, **parameters: Any) -> Self:
        """Change some parameters; what was fitted stays until `fit` is called again.

        Raises
        ------
        ConfigError
            There is no such parameter, and none was changed.
        """
        known = self.get_params()
        for name in parameters:
            if name not in known:
                raise ConfigError(f"is no parameter of {type(self).__name__}: known are {', '.join(known)}", name)
        for name, value in parameters.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        changed = ((field.name, field.default, getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        shown = ", ".join(f"{name}={value!r}" for name, default, value in changed if value is not default)
        return f"{type(self).__name__}({shown})"

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn, which alone asks, what is special: answers are random, and rows with NaN are left out."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            non_deterministic=True,
            input_tags=InputTags(allow_nan=True),
        )


@dataclass(kw_only=True, repr=False, eq=False)
class PrivateMean(PrivateEstimator):
    """Estimator of the differentially private mean of rows, of all or without outliers: `private_mean`.

    Parameters
    ----------
    radius, rho, delta, size_hint, step, bounds, method, spread, center, radius_min, radius_max, outliers, scale, noise
        As in `private_mean`.

    Attributes
    ----------
    value_, sigma_ : float64 (d,) or None
        The mean and the standard deviation of its noise; None if the answer is a refusal.
    status_, reason_ : str
        ``released`` or ``refused``, and why.
    answer_ : Release
        All that `private_mean` returned.
    n_features_in_, feature_names_in_
        Number of columns of `X`, and their names if it was a data frame.

    Privacy
    -------
    As of `private_mean`, for every call of `fit`. The losses of several calls add up, and the caller must keep account
    of them: a grid search or a cross-validation on protected rows spends the budget as often as it fits.

    Source
    ------
    Specification 5.2, 5.3, 5.4, 5.6, 5.18; proofs 5.3, 5.4, 5.6, 5.11.

    Examples
    --------
    >>> import numpy as np, fcstream
    >>> rows = np.random.default_rng(1).normal(20.0, 0.5, size=(2000, 3))
    >>> mean = fcstream.PrivateMean(radius=4, rho=0.5, size_hint=2000, step=1e-3, bounds=(-50, 50))
    >>> mean.fit(rows).value_.round().tolist()
    [20.0, 20.0, 20.0]
    """

    _function: ClassVar[Callable[..., Any]] = staticmethod(private_mean)

    radius: float | str | None = None
    rho: float | None = None
    delta: float = 0.0
    size_hint: int | None = None
    step: float | None = None
    bounds: Bounds | None = None
    method: str = "recentered"
    spread: float | str = "histogram"
    center: Sequence[float] | None = None
    radius_min: float | None = None
    radius_max: float | None = None
    outliers: float | str | None = None
    scale: str | None = None
    noise: Noise | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class PrivateCenters(PrivateEstimator):
    """Estimator of differentially private centers of clusters: `private_centers`.

    Parameters
    ----------
    k, rho, step, ball, delta, size_hint, bounds, center, oracle, radius, radius_min, tuples, spread, method
        As in `private_centers`.
    fallback, fallback_share, variant, noise
        Likewise.

    Attributes
    ----------
    value_, cluster_centers_, sigma_ : float64 (k, d) or None
        The centers (under both names), and the standard deviation of their noise; None if the answer is a refusal.
    status_, reason_, n_features_in_, feature_names_in_
        As of `PrivateMean`.
    answer_
        All that `private_centers` returned, with noisy numbers of rows and the loss that was spent.

    Privacy
    -------
    As of `private_centers`, for every call of `fit`; losses add up as those of `PrivateMean`.

    Source
    ------
    Specification 6.12, 6.16; proofs 7.8, 7.10.
    """

    _function: ClassVar[Callable[..., Any]] = staticmethod(private_centers)
    _alias: ClassVar[str | None] = "cluster_centers_"

    k: int | str | None = None
    rho: float | None = None
    step: float | None = None
    ball: float | None = None
    delta: float = 0.0
    size_hint: int | None = None
    bounds: Bounds | None = None
    center: Sequence[float] | None = None
    oracle: str | Oracle = "auto"
    radius: str | float = "histogram"
    radius_min: float | None = None
    tuples: int | None = None
    spread: float | None = None
    method: str = "auto"
    fallback: str | None = None
    fallback_share: float = 0.1
    variant: str | None = None
    noise: Noise | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class PrivateCovariance(PrivateEstimator):
    """Estimator of a differentially private covariance matrix: `private_covariance`.

    Parameters
    ----------
    rho, delta, size_hint, step, bounds, method, scale, components, target, noise
        As in `private_covariance`.
    epsilon, shards, centered, limit, eta
        Likewise, for ``method="friendly"``.

    Attributes
    ----------
    value_, covariance_, sigma_ : float64 (d, d) or None
        The matrix (under both names), and the standard deviation of its noise where it is known; None if the answer is
        a refusal.
    status_, reason_, answer_, n_features_in_, feature_names_in_
        As of `PrivateMean`.

    Privacy
    -------
    As of `private_covariance`, for every call of `fit`; losses add up as those of `PrivateMean`.

    Source
    ------
    Specification 7.3, 7.4; proofs 8.2, 8.3.
    """

    _function: ClassVar[Callable[..., Any]] = staticmethod(private_covariance)
    _alias: ClassVar[str | None] = "covariance_"

    rho: float | None = None
    delta: float = 0.0
    size_hint: int | None = None
    step: float | None = None
    bounds: Bounds | None = None
    method: str = "clipped"
    scale: str | None = "learned"
    components: int | None = None
    target: int | None = None
    epsilon: float | None = None
    shards: int | None = None
    centered: bool = True
    limit: float = LIMIT
    eta: float | None = None
    noise: Noise | None = None


def _dense(X: Any) -> ArrayLike:
    """Return what may be read as numbers; sparse matrices and complex numbers may not."""
    if hasattr(X, "toarray"):
        raise ConfigError("must be dense: a sparse matrix is not read, give X.toarray()", "X")
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise ConfigError("must hold real numbers. Complex data not supported", "X")
    return X  # type: ignore[no-any-return]
