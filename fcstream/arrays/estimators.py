"""Private answers as estimators with the conventions of scikit-learn, which need not be installed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ConfigError
from ..formats.frames import columns_of
from .arguments import rows_of
from .asking import PUBLIC
from .functions import private_centers, private_covariance, private_mean


class PrivateEstimator:
    """What the estimators share: parameters are attributes, and `fit` asks the function of the same name.

    Parameters are the function's arguments. Those that it requires are None by default, as scikit-learn wants it, and
    `fit` refuses None: there is no harmless default for what must be public.
    """

    _function: ClassVar[Callable[..., Any]]
    _alias: ClassVar[str | None] = None

    def __init__(self, **parameters: Any) -> None:
        bound = inspect.signature(type(self)).bind(**parameters)
        bound.apply_defaults()
        vars(self).update(bound.arguments)

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
                raise ConfigError(PUBLIC, name)
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
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

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
        known = inspect.signature(type(self)).parameters
        changed = {name: value for name, value in self.get_params().items() if value is not known[name].default}
        shown = ", ".join(f"{name}={value!r}" for name, value in changed.items())
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


def estimator_of(
    name: str, function: Callable[..., Any], summary: str, value: str, source: str, alias: str | None = None
) -> type[PrivateEstimator]:
    """Make the estimator of a function about rows, whose arguments are its parameters; see `PrivateEstimator`."""
    asked = inspect.signature(function)
    parameters = [
        one.replace(kind=one.KEYWORD_ONLY, default=None, annotation=f"{one.annotation} | None")
        if one.default is inspect.Parameter.empty
        else one.replace(kind=one.KEYWORD_ONLY)
        for one in [*asked.parameters.values()][1:]
    ]
    made = type(
        name, (PrivateEstimator,), {"_function": staticmethod(function), "_alias": alias, "__module__": __name__}
    )
    made.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    known = "value_" if alias is None else f"value_, {alias}"
    made.__doc__ = f"""Estimator of {summary}: `{function.__name__}`.

Parameters
----------
{", ".join(one.name for one in parameters)}
    As in `{function.__name__}`.

Attributes
----------
{known}, sigma_
    {value}; None if the answer is a refusal.
status_, reason_ : str
    ``released`` or ``refused``, and why.
answer_
    All that `{function.__name__}` returned.
n_features_in_, feature_names_in_
    Number of columns of `X`, and their names if it was a data frame.

Privacy
-------
As of `{function.__name__}`, for every call of `fit`. The losses of several calls add up, and the caller must keep
account of them: a grid search or a cross-validation on protected rows spends the budget as often as it fits.

Source
------
{source}
"""
    return made


PrivateMean = estimator_of(
    "PrivateMean",
    private_mean,
    "the differentially private mean of rows, of all or without outliers",
    "The mean (d,) and the deviation of its noise",
    "Specification 5.2, 5.3, 5.4, 5.6, 5.18; proofs 5.3, 5.4, 5.6, 5.11.",
)
PrivateCenters = estimator_of(
    "PrivateCenters",
    private_centers,
    "differentially private centers of clusters",
    "The centers (k, d) and the deviation of their noise",
    "Specification 6.12, 6.16; proofs 7.8, 7.10.",
    "cluster_centers_",
)
PrivateCovariance = estimator_of(
    "PrivateCovariance",
    private_covariance,
    "a differentially private covariance matrix",
    "The matrix (d, d) and the deviation of its noise where it is known",
    "Specification 7.3, 7.4; proofs 8.2, 8.3.",
    "covariance_",
)


def _dense(X: Any) -> ArrayLike:
    """Return what may be read as numbers; sparse matrices and complex numbers may not."""
    if hasattr(X, "toarray"):
        raise ConfigError("must be dense: a sparse matrix is not read, give X.toarray()", "X")
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise ConfigError("must hold real numbers. Complex data not supported", "X")
    return X  # type: ignore[no-any-return]
