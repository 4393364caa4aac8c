"""Estimators: what the functions answer, with the conventions of scikit-learn, which is not needed."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest

import fcstream
from fcstream import ConfigError, Noise, PrivateCenters, PrivateCovariance, PrivateMean, SeededEntropy

pytestmark = pytest.mark.usefixtures("one_start")

MEAN = {"radius": 4, "rho": 0.5, "delta": 1e-8, "size_hint": 500, "step": 1e-3, "bounds": (-1000, 1000)}
CENTERS = {"k": 2, "rho": 50, "step": 1e-4, "ball": 10, "delta": 1e-6, "size_hint": 30_000, "method": "friendly"}
COVARIANCE = {"rho": 2.0, "size_hint": 500, "step": 1e-3, "bounds": (-1000, 1000)}
FRIENDLY = {"method": "friendly", "epsilon": 40.0, "delta": 1e-5, "shards": 700, "step": 1e-3, "bounds": (-1000, 1000)}
ALL = [
    (PrivateMean, fcstream.private_mean, MEAN),
    (PrivateCenters, fcstream.private_centers, CENTERS),
    (PrivateCovariance, fcstream.private_covariance, COVARIANCE),
]
each = pytest.mark.parametrize(("cls", "function", "parameters"), ALL, ids=lambda value: getattr(value, "__name__", ""))
HERE = {
    "check_estimators_empty_data_messages": "how many rows there are is private: none is an answer, not an error",
    "check_dtype_object": "a cell that is no number is a ConfigError, which is a ValueError and no TypeError",
}


def rows(n=500):
    return np.random.default_rng(1).normal(20.0, 0.5, (n, 2))


def seeded():
    return Noise(SeededEntropy(1))


@each
def test_parameters_are_those_of_the_function(cls, function, parameters):
    asked = {name: one for name, one in inspect.signature(function).parameters.items() if name != "points"}
    own = inspect.signature(cls).parameters
    assert list(own) == list(asked)
    for name, one in asked.items():
        required = one.default is inspect.Parameter.empty
        assert own[name].default == (None if required else one.default)
        assert own[name].annotation == (f"{one.annotation} | None" if required else one.annotation)
    made = cls(**parameters)
    assert made.get_params() == {name: one.default for name, one in own.items()} | parameters
    shown = ", ".join(f"{key}={parameters[key]!r}" for key in own if key in parameters)
    assert repr(made) == f"{cls.__name__}({shown})"


@each
def test_what_is_public_must_be_given(cls, function, parameters):
    asked = inspect.signature(function).parameters
    for name in (name for name in parameters if asked[name].default is inspect.Parameter.empty):
        with pytest.raises(ConfigError, match=f"^{name}: must be given: it is public"):
            cls(**{key: value for key, value in parameters.items() if key != name}).fit(rows(5))


def test_a_mean_is_that_of_the_function():
    made = PrivateMean(**MEAN, noise=seeded())
    assert made.fit(rows(), y="ignored") is made
    answer = fcstream.private_mean(rows(), **MEAN, noise=seeded())
    assert made.answer_ == answer
    assert made.value_.tolist() == answer.value
    assert made.sigma_.tolist() == answer.sigma
    assert (made.status_, made.reason_, made.n_features_in_) == ("released", None, 2)
    made.fit(rows(3)[:, :1])
    assert (made.value_, made.sigma_, made.status_, made.reason_) == (None, None, "refused", "too_few")
    assert made.n_features_in_ == 1


def test_centers_have_the_name_that_scikit_learn_has_for_them():
    random = np.random.default_rng(1)
    points = random.normal(0, 0.02, (30_000, 2)) + random.permutation([[3.0, 3.0], [-3.0, 0.0]] * 15_000)
    made = PrivateCenters(**CENTERS, noise=seeded()).fit(points)
    answer = fcstream.private_centers(points, noise=seeded(), **CENTERS)
    assert made.value_.tolist() == answer.value
    assert made.cluster_centers_ is made.value_
    assert made.answer_.parts["counts"] == answer.parts["counts"]
    assert made.value_.round().tolist() == [[-3.0, 0.0], [3.0, 3.0]]


def test_covariances_have_the_name_that_scikit_learn_has_for_them():
    made = PrivateCovariance(**COVARIANCE, noise=seeded()).fit(rows())
    assert made.value_ is made.covariance_
    assert made.value_.shape == made.sigma_.shape == (2, 2)
    friendly = PrivateCovariance(**FRIENDLY, noise=seeded()).fit(rows())
    assert friendly.value_ is friendly.covariance_ is None
    assert friendly.answer_ == fcstream.private_covariance(rows(), **FRIENDLY, noise=seeded())
    assert made.answer_ == fcstream.private_covariance(rows(), **COVARIANCE, noise=seeded())


def test_parameters_change_together_or_not_at_all():
    made = PrivateMean(**MEAN)
    assert made.set_params(rho=2.0, method="friendly") is made
    assert (made.rho, made.method) == (2.0, "friendly")
    with pytest.raises(ConfigError, match=r"raduis: is no parameter of PrivateMean: known are radius, rho"):
        made.set_params(rho=9.0, raduis=3)
    assert made.rho == 2.0


def test_an_estimator_can_be_kept():
    made = PrivateMean(**MEAN).fit(rows())
    again = pickle.loads(pickle.dumps(made))
    assert again.get_params() == made.get_params()
    assert again.value_.tolist() == made.value_.tolist()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_data_frames_have_names(library):
    module = pytest.importorskip(library)
    columns = dict(zip(["x", "y"], rows().T, strict=True))
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    made = PrivateMean(**MEAN, noise=seeded()).fit(frame)
    assert made.feature_names_in_.tolist() == ["x", "y"]
    assert made.value_.tolist() == PrivateMean(**MEAN, noise=seeded()).fit(rows()).value_.tolist()
    assert not hasattr(made.fit(rows()), "feature_names_in_")


@each
@pytest.mark.filterwarnings("ignore:.*does not inherit from:UserWarning")
def test_scikit_learn_accepts_them(cls, function, parameters):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    if "expected_failed_checks" not in inspect.signature(checks.check_estimator).parameters:
        pytest.skip("before 1.6 the checks need scikit-learn's own base class")
    told = checks.check_estimator(cls(**parameters), expected_failed_checks=HERE, on_skip=None)
    assert {one["check_name"] for one in told if one["status"] == "xfail"} == set(HERE)
    assert sum(one["status"] == "passed" for one in told) > 25


def test_scikit_learn_copies_them():
    clone = pytest.importorskip("sklearn.base").clone
    made = PrivateMean(**MEAN).fit(rows())
    copy = clone(made)
    assert type(copy) is PrivateMean
    assert copy.get_params() == made.get_params()
    assert not hasattr(copy, "value_")


def test_scikit_learn_is_not_imported():
    code = (
        "import sys, numpy, fcstream; sys.modules['sklearn'] = None\n"
        f"fcstream.PrivateMean(**{MEAN!r}).fit(numpy.zeros((5, 2))).set_params(rho=1.0)\n"
        "print([name for name in sys.modules if name.startswith('sklearn.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
