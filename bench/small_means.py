"""How far means of small windows lie from the truth, in units of the sigma that they are released with.

    python bench/small_means.py

One normal feature, rho 0.2, delta 1e-9, a radius of six standard deviations, 200 windows of each size; seeded.
"""

import numpy as np

from fcstream import Noise, SeededEntropy, private_mean

WINDOWS = 200


def errors(size: int) -> np.ndarray:
    """Errors in units of sigma, of the windows that were released."""
    found = []
    for seed in range(WINDOWS):
        rows = np.random.default_rng(seed).normal(20.0, 1.0, (size, 1))
        answer = private_mean(
            rows, radius=6, rho=0.2, delta=1e-9, size_hint=size, step=0.01, bounds=(-50, 200), outliers="leave_out",
            noise=Noise(SeededEntropy(seed)),
        )  # fmt: skip
        if answer.value is not None and answer.sigma is not None:
            found.append(abs(answer.value[0] - rows.mean()) / answer.sigma[0])
    return np.array(found)


def main() -> None:
    for size in (400, 640, 1000):
        found = errors(size)
        two, three = (found <= 2).sum(), (found <= 3).sum()
        print(f"{size} records: {len(found)} released; held by 2 sigma {two}, by 3 {three}; largest {found.max():.1f}")


if __name__ == "__main__":
    main()
