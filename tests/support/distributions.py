"""Whether draws follow a distribution."""

from scipy import stats


def chi_square_p(draws, pmf):
    """p-value of draws against a pmf, rare values pooled."""
    n = len(draws)
    common = [y for y, p in pmf.items() if n * p >= 10]
    observed = [int((draws == y).sum()) for y in common]
    expected = [n * pmf[y] for y in common]
    observed.append(n - sum(observed))
    expected.append(n - sum(expected))
    if expected[-1] < 5 and len(expected) > 2:
        observed[-2:] = [sum(observed[-2:])]
        expected[-2:] = [sum(expected[-2:])]
    return stats.chisquare(observed, expected).pvalue
