"""Tables of codes, and noise that is none."""

import numpy as np

from fcstream import Noise
from fcstream.synthetic.codes import Attribute, Codes


class Silent(Noise):
    """Draws of nothing but 0: what is left is the arithmetic."""

    def discrete_gaussian(self, variance, size):
        return np.zeros(size, np.int64)

    def discrete_laplace(self, scale, size):
        return np.zeros(size, np.int64)


def codes_of(sizes):
    columns = [
        Attribute(f"x{k}", k, tuple(range(1, size)), tuple(map(str, range(size)))) for k, size in enumerate(sizes)
    ]
    return Codes.ordered(columns)


def table(n, sizes, seed=0):
    """Codes that hang together."""
    rng = np.random.default_rng(seed)
    lean = rng.random(n)
    return np.column_stack([np.minimum((rng.random(n) * 0.5 + lean * 0.5) * size, size - 1) for size in sizes]).astype(
        int
    )
