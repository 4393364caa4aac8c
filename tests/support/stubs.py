"""The stubs of functions and estimators about arrays, which are made at run time; running this file writes them."""

import inspect
import re
import subprocess
from pathlib import Path

import fcstream
from fcstream.arrays import estimators, functions

HOMES = {
    "Sequence": "collections.abc",
    "Any": "typing",
    "Literal": "typing",
    "Self": "typing",
    "ArrayLike": "numpy.typing",
    "Noise": "..noise.samplers",
    "Oracle": "..releases.clusters.oracles",
    "Bounds": ".arguments",
    "ArrayRelease": ".left_out",
}


def stubs():
    """Text by path of each stub."""
    folder = Path(fcstream.__file__).parent / "arrays"
    made = [value for name, value in vars(functions).items() if name.startswith("private_")]
    classes = [
        value for name, value in vars(estimators).items() if hasattr(value, "_alias") and name != "PrivateEstimator"
    ]
    return {
        folder / "functions.pyi": _stub("\n".join(map(_function, made))),
        folder / "estimators.pyi": _stub(f"{BASE}\n" + "\n".join(map(_class, classes))),
    }


def _stub(body):
    used = [name for name in HOMES if re.search(rf"\b{name}\b", body)]
    return "\n".join(f"from {HOMES[name]} import {name}" for name in used) + f"\n\n{body}\n"


BASE = """\
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
"""


def _parameters(signature):
    shown, is_alone = [], False
    for name, one in signature.parameters.items():
        if one.kind is one.KEYWORD_ONLY and not is_alone:
            shown, is_alone = [*shown, "*"], True
        default = "" if one.default is one.empty else f" = {one.default!r}"
        shown.append(f"{name}: {one.annotation}{default}")
    return shown


def _function(function):
    signature = inspect.signature(function)
    return f"def {function.__name__}(\n    " + ",\n    ".join(_parameters(signature)) + ",\n) -> ArrayRelease: ..."


def _class(cls):
    listed = ",\n        ".join(["self", *_parameters(inspect.signature(cls))])
    alias = "" if cls._alias is None else f"    {cls._alias}: Any\n"
    return f"class {cls.__name__}(PrivateEstimator):\n{alias}    def __init__(\n        {listed},\n    ) -> None: ...\n"


def formatted(path, text):
    """As `ruff` writes it."""
    for arguments in (["check", "--fix", "--select", "I"], ["format"]):
        command = ["ruff", *arguments, "-q", "--stdin-filename", path, "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(formatted(path, text))
