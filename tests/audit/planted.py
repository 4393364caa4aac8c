"""Known faults, each planted into a copy of the package, and the tests that must notice it.

    python tests/audit/planted.py [WORDS...] [--list]

plants one after the other those whose names hold one of the words (all without any), runs the tests beside it, and says
which one caught it. Exit code 1 if a fault goes unnoticed, or if a test fails without one.

A fault is a piece of source text and what a mistaken hand might have written there. The text must stand in its file
exactly once, so a fault whose place has moved says so (`test_planted`) and does not pass for caught.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Fault:
    """One of them.

    Attributes
    ----------
    name : str
    file : str
        In the package.
    old, new : str
        What stands there once, and what is planted.
    tests : tuple of str
        Below ``tests/``: one at least must fail.
    quick : bool
        Among those that every run of the tests plants.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    quick: bool = False


SENSITIVITY = "unit/releases/test_sums.py::test_one_record_moves_what_is_released_by_what_is_paid_for"
MECHANISMS = "audit/test_mechanisms.py::test_a_cheap_mechanism_stays_below_its_claim"
ZOOMING = "unit/releases/test_zooming_means.py::test_windows_are_those_of_the_slow_twin"
FREQUENT = "audit/test_frequent.py::test_neighbors_stay_below_the_claim"
THRESHOLD = (
    "unit/releases/test_frequent.py::test_the_threshold_is_the_least_number_that_a_text_of_one_record_hardly_reaches"
)
DISCOVERY = "audit/test_discovery.py"
DISCOVERING = "unit/engine/test_discovering.py"
STREAM = "audit/test_stream_faults.py::test"
OF_ALL = "unit/releases/test_clipped_means.py::test_a_release_equals_the_naive_twin"
FEW = "unit/releases/test_small_windows.py::test_a_window_is_refused_by_its_noisy_number_alone"
CLIPPED = "unit/releases/test_clipped_covariance.py::"
LEARNED = "unit/releases/test_learned_means.py::"
LEARNED_AUDIT = "audit/test_mechanisms.py::test_learned_scales_cost_their_tenth_and_a_window_all_of_its_rho"
CLIPPED_AUDIT = "audit/test_mechanisms.py::test_clipped_moments_stay_below_their_claim_and_are_not_far_from_it"
TOTALS = "audit/test_totals.py::test_an_epoch_of_totals_stays_below_its_claim_and_is_not_far_from_it"
TREES = "audit/test_trees.py::test_neighbors_stay_below_the_claim"
TREE_TWIN = "unit/releases/test_trees.py::test_a_tree_is_that_of_its_slow_twin"
TREE_CORNER = "unit/releases/test_trees.py::test_noise_of_a_points_sums_pays_for_every_corner_of_its_box"
INTEGERS = "unit/releases/test_totals.py::test_the_integers_are_those_of_the_rationals"
REPLAY = "audit/test_replay.py::test_one_record_costs_what_was_started"
REPLAYED = "audit/test_replayed_streams.py::test_a_stream_and_its_neighbor_release_the_same"
SAME_NOISE = (
    "import copy, functools; again, noise = functools.cache(noise.discrete_gaussian), copy.copy(noise); "
    "noise.discrete_gaussian = again\n"
)

FAULTS = [
    # -- noise that is too small ---------------------------------------------------------------------------------------
    Fault(
        "half the noise of a ball's sum",
        "releases/averages.py",
        "variance = gaussian_variance(radius_squared, self.sum_nano)\n",
        "variance = gaussian_variance(radius_squared, self.sum_nano) / 4\n",
        (f"{MECHANISMS}[ball]",),
        quick=True,
    ),
    Fault(
        "half the noise of a ball's count",
        "releases/averages.py",
        "count = size + noise.one_gaussian(self.count_variance)",
        "count = size + noise.one_gaussian(self.count_variance / 4)",
        (f"{MECHANISMS}[ball]",),
    ),
    Fault(
        "half the noise of a count",
        "releases/statistics/count.py",
        "return Fraction(RHO_UNIT, 2 * self.loss.rho_nano)",
        "return Fraction(RHO_UNIT, 8 * self.loss.rho_nano)",
        (f"{MECHANISMS}[count]",),
    ),
    Fault(
        "a sum whose noise forgets the number of records",
        "releases/statistics/sum.py",
        "for width in widths) + self.weight**2",
        "for width in widths)",
        (SENSITIVITY,),
    ),
    Fault(
        "a sum whose noise forgets half of the ranges",
        "releases/statistics/sum.py",
        "each.half_width if self.weight else each.largest for each",
        "each.half_width // 2 if self.weight else each.largest // 2 for each",
        (SENSITIVITY,),
    ),
    Fault(
        "half the noise of running totals",
        "releases/totals/factor.py",
        "RHO_UNIT // (2 * rho_nano)",
        "RHO_UNIT // (8 * rho_nano)",
        (f"{TOTALS}[count, first window]",),
    ),
    Fault(
        "a running total whose records pay for one release only",
        "releases/totals/factor.py",
        "return int((self.weights**2 * self._squares[:0:-1]).max())",
        "return int((self.weights**2 * self._squares[1]).max())",
        (f"{TOTALS}[count, first window]", INTEGERS),
    ),
    Fault(
        "running totals that forget the noise of earlier windows",
        "releases/totals/memory.py",
        "carried = (drawn << self.bits) - self._past()",
        "carried = drawn << self.bits",
        ("unit/releases/test_totals.py::test_what_is_released_is_what_the_rationals_say",),
    ),
    Fault(
        "running sums whose noise forgets the ranges",
        "releases/totals/sums.py",
        "        return self.inner.sensitivity_squared\n",
        "        return 1\n",
        (f"{TOTALS}[sum]",),
    ),
    Fault(
        "a lost memory of an epoch that nobody notices",
        "engine/epochs.py",
        "if len(rows) == known:",
        "if True:",
        ("unit/engine/test_totals.py::test_a_lost_state_is_refused_until_the_next_epoch",),
    ),
    Fault(
        "exact totals stay in the ledger after the last window of their epoch",
        "engine/epochs.py",
        "is_last = (window.index + 1) % mechanism.epoch_windows == 0",
        "is_last = False",
        ("unit/engine/test_totals.py::test_the_last_window_of_an_epoch_leaves_nothing",),
    ),
    Fault(
        "a process that was let in during a commit is not seen after it",
        "ledgers/files.py",
        "            self.fence.check()  # nothing is",
        "            # nothing is",
        ("recovery/test_fence.py::test_who_is_let_in_during_a_commit_is_seen_after_it",),
    ),
    Fault(
        "what another process sealed is missing in the memory of an epoch",
        "engine/closing.py",
        "        if len(closed) < len(windows):\n            self._epochs.forget()\n",
        "",
        ("unit/engine/test_totals.py::test_a_standby_takes_over_with_what_the_other_process_sealed",),
    ),
    Fault(
        "half the noise of a tree's counts",
        "releases/trees/growing.py",
        "return Fraction(RHO_UNIT, 2 * self.level_nano)",
        "return Fraction(RHO_UNIT, 8 * self.level_nano)",
        (f"{TREES}[a whole path]", TREE_CORNER),
    ),
    Fault(
        "half the noise of a leaf's sums and count",
        "releases/trees/growing.py",
        "noise.discrete_gaussian(gaussian_variance(square, share), len(mine))",
        "noise.discrete_gaussian(gaussian_variance(square, share) / 4, len(mine))",
        (f"{TREES}[a leaf's corner]", TREE_CORNER),
    ),
    Fault(
        "a leaf's sums forget that a record moves all of them",
        "releases/trees/growing.py",
        "sides = reach * reach.sum(axis=1, keepdims=True)",
        "sides = reach * reach",
        (TREE_CORNER,),
    ),
    Fault(
        "a leaf spends again what its path has spent",
        "releases/trees/growing.py",
        "(self.box.depth - levels[leaves] - vain) * self.level_nano",
        "(self.box.depth + 1) * self.level_nano",
        (TREE_CORNER, TREE_TWIN),
    ),
    Fault(
        "a leaf forgets what asking its dropped children cost",
        "releases/trees/growing.py",
        "(self.box.depth - levels[leaves] - vain)",
        "(self.box.depth - levels[leaves])",
        (TREE_CORNER,),
    ),
    Fault(
        "true counts decide which boxes there are",
        "releases/trees/growing.py",
        "            asked = sizes + self._drawn(noise, len(sizes))\n",
        "            asked = np.where(sizes > 0, sizes + self._drawn(noise, len(sizes)), 0)\n",
        (TREE_TWIN,),
    ),
    Fault(
        "records beyond the public box are summed up as they are",
        "releases/trees/growing.py",
        "        trees.clamp(points, low, high)\n        start(self.first)\n",
        "        start(self.first)\n",
        (TREE_TWIN,),
    ),
    Fault(
        "half the noise of frequent texts",
        "releases/statistics/frequent.py",
        "return Fraction(self.per_user * RHO_UNIT, 2 * self.share.rho_nano)",
        "return Fraction(self.per_user * RHO_UNIT, 8 * self.share.rho_nano)",
        (f"{FREQUENT}[event]", THRESHOLD),
    ),
    Fault(
        "a text of one record is told a little too often",
        "releases/statistics/frequent.py",
        "return 1 + min_gaussian(",
        "return min_gaussian(",
        (THRESHOLD, f"{FREQUENT}[event, a new text]"),
    ),
    Fault(
        "a threshold that forgets that a user has several texts",
        "releases/statistics/frequent.py",
        "DELTA_UNIT * self.per_user",
        "DELTA_UNIT",
        (THRESHOLD,),
    ),
    Fault(
        "a user's texts are those that were read first",
        "stream/user_values.py",
        "if (rank, text) > self.last:",
        "if text:",
        ("unit/releases/test_frequent.py::test_a_users_texts_are_a_function_of_that_users_records",),
    ),
    Fault(
        "half the noise of a histogram",
        "releases/statistics/histogram.py",
        "return Fraction(RHO_UNIT, 2 * self.loss.rho_nano)",
        "return Fraction(RHO_UNIT, 8 * self.loss.rho_nano)",
        (f"{MECHANISMS}[histogram]",),
    ),
    Fault(
        "a bin of the histogram without noise where it is empty",
        "releases/statistics/histogram.py",
        "counts = view + noise.discrete_gaussian(self.variance, self.bins)",
        "counts = np.where(view > 0, view + noise.discrete_gaussian(self.variance, self.bins), 0)",
        (f"{MECHANISMS}[histogram, a bin of one record]",),
    ),
    Fault(
        "quantiles at twice their epsilon",
        "releases/statistics/quantiles.py",
        "squares = sum(reach * reach for reach in reaches)",
        "squares = max(1, sum(reach * reach for reach in reaches) // 4)",
        (
            f"{MECHANISMS}[quantiles]",
            "unit/releases/test_statistics.py::test_shares_of_quantiles_sum_exactly_and_pay_for_their_epsilon",
            f"{CLIPPED}test_stages_pay_for_their_noise_and_add_up",
        ),
    ),
    Fault(
        "what lies outside the ball of a variance without noise",
        "releases/statistics/variance.py",
        "outside = view.size - inside + noise.one_gaussian(self.count_variance)",
        "outside = view.size - inside + 0 * noise.one_gaussian(self.count_variance)",
        ("unit/releases/test_searched_variances.py::test_it_is_the_twins_around_the_searched_mean[2.0-hidden]",),
    ),
    Fault(
        "squares of a variance at half their sensitivity",
        "releases/statistics/variance.py",
        "variance = gaussian_variance(Fraction(ball, 2**shift) ** 2, squares)",
        "variance = gaussian_variance(Fraction(ball, 2**shift) ** 2 / 16, squares)",
        ("audit/test_mechanisms.py::test_squares_of_a_variance_have_the_noise_of_their_sensitivity",),
    ),
    Fault(
        "second moments of a mixture at half their sensitivity",
        "releases/clusters/mixtures.py",
        "variance = gaussian_variance(ball * ball, rest)",
        "variance = gaussian_variance(ball * ball, rest) / 16",
        ("unit/releases/test_ktuple_mixtures.py::test_a_learners_noise_is_that_of_its_share",),
    ),
    Fault(
        "second moments of clipped records at half their sensitivity",
        "releases/statistics/clipped.py",
        'return gaussian_variance(limit * limit, self.shares["moments"].rho_nano)',
        'return gaussian_variance(limit * limit, self.shares["moments"].rho_nano) / 4',
        (f"{CLIPPED}test_stages_pay_for_their_noise_and_add_up", CLIPPED_AUDIT),
    ),
    Fault(
        "pairs of clipped records with half the noise that they need",
        "releases/averages.py",
        "noise.discrete_gaussian(variance / 2, len(rows))",
        "noise.discrete_gaussian(variance / 8, len(rows))",
        (CLIPPED_AUDIT,),
    ),
    Fault(
        "sums of clipped records at half their sensitivity",
        "releases/statistics/clipped.py",
        'variance = gaussian_variance(limit, self.shares["sums"].rho_nano)\n',
        'variance = gaussian_variance(limit, self.shares["sums"].rho_nano) / 4\n',
        (f"{CLIPPED}test_stages_pay_for_their_noise_and_add_up",),
    ),
    Fault(
        "records beyond the ball that stay where they are",
        "releases/statistics/clipped_sums.py",
        "(float(radius_squared), float(1 << shift), float(limit))",
        "(2.0**52, float(1 << shift), 2.0**52)",
        (CLIPPED_AUDIT,),
    ),
    Fault(
        "products of more records than 32 bits can hold",
        "releases/statistics/clipped_sums.py",
        "((2**34 - 1) // max(1, limit))",
        "((2**35 - 1) // max(1, limit))",
        (f"{CLIPPED}test_sums_of_products_are_exact_at_the_ends_of_what_is_proven",),
    ),
    Fault(
        "ranks that count twice",
        "releases/statistics/quantiles.py",
        "np.maximum(a * size - b * (size - above), b * below - a * size)",
        "np.maximum(2 * (a * size - b * (size - above)), b * below - a * size)",
        (f"{CLIPPED}test_one_record_moves_a_cost_by_what_is_paid_for",),
    ),
    Fault(
        "scales before a mean that nobody pays for",
        "releases/statistics/learned.py",
        "rest = PrivacyLoss(whole.rho_nano - whole.rho_nano // SHARE)",
        "rest = whole",
        (f"{LEARNED}test_a_window_pays_a_tenth_for_its_scales_and_all_in_all_what_was_asked_for", LEARNED_AUDIT),
    ),
    Fault(
        "earlier scales after a refusal",
        "releases/statistics/learned.py",
        "if outcome.reason is not None:\n            return None",
        "if outcome.reason is not None:\n            return self.track",
        (f"{LEARNED}test_a_refused_window_and_a_lost_core_make_the_next_one_learn_anew",),
    ),
    Fault(
        "rescaled coordinates that are truncated",
        "releases/statistics/learned.py",
        "((left > other) | ((left == other) & (low % 2 == 1)))",
        "0",
        (f"{LEARNED}test_halves_go_to_the_even_number_and_declared_features_stay",),
    ),
    Fault(
        "a sample of the first records",
        "releases/statistics/learned.py",
        "sampled_rows(len(rows), Fraction(wanted, self.size_hint), noise)",
        "np.arange(wanted)",
        (f"{LEARNED}test_scales_of_a_sample_are_near_those_of_all",),
    ),
    Fault(
        "both sides of a median paid as the one where a record is not",
        "releases/statistics/scales.py",
        "[own, other] if self.has_sides else [own]",
        "[other, other] if self.has_sides else [own]",
        (LEARNED_AUDIT,),
    ),
    Fault(
        "second moments of points at a fraction of their sensitivity",
        "releases/tables/points.py",
        "gaussian_variance(REACH**4, self.shares[1])",
        "gaussian_variance(REACH**3, self.shares[1])",
        ("unit/releases/test_points.py::test_sensitivities_and_what_the_parts_cost",),
    ),
    Fault(
        "second moments of a table as if pairs were one number",
        "releases/tables/synthetic.py",
        "gaussian_variance(max(1, codes.pairs_squared), shares.pairs)",
        "gaussian_variance(1, shares.pairs)",
        ("unit/synthetic/test_cost.py::test_the_parts_cost_what_is_charged",),
    ),
    Fault(
        "products of three levels as if a set of columns were one number",
        "synthetic/triples.py",
        "sum(norms[a] * norms[b] * norms[c] for a, b, c in self.sets)",
        "len(self.sets)",
        ("unit/synthetic/test_triples.py::test_every_possible_record_moves_the_sums_by_the_same",),
    ),
    Fault(
        "a check of the diameter at half its sensitivity",
        "releases/diameter_search.py",
        "gaussian_variance((2 * _ONE + 1) ** 2, self.rho_nano)",
        "gaussian_variance((_ONE + 1) ** 2, self.rho_nano)",
        ("unit/releases/test_searched_means.py::test_searches_equal_the_naive_twin_with_the_same_words",),
    ),
    Fault(
        "a search in a sample that pays by the sample's share",
        "releases/means/searched.py",
        "return self.loss - PrivacyLoss(self.search.rho_nano)",
        "return self.loss - PrivacyLoss(int(self.search.rho_nano * self.sample_rate))",
        ("unit/releases/test_searched_means.py::test_a_sample_finds_a_radius_and_the_core_has_coins_of_its_own",),
    ),
    Fault(
        "a variance that forgets what its search has cost",
        "releases/statistics/variance.py",
        "rest = self.loss.rho_nano - self.mean.loss.rho_nano",
        "rest = self.loss.rho_nano - self._known.loss.rho_nano",
        (
            "unit/releases/test_searched_variances.py::test_it_costs_no_more_than_it_says_and_checks_that_are_not_needed_come_back",
        ),
    ),
    Fault(
        "counts of the Laplace test as if they were one number",
        "releases/clusters/paper.py",
        "Fraction(_FINE * self.positions * EPSILON_UNIT, one)",
        "Fraction(_FINE * EPSILON_UNIT, one)",
        ("unit/releases/test_ktuples_paper.py::test_its_noise_is_that_of_its_epsilons",),
    ),
    Fault(
        "logarithms of distances as if only one moved",
        "releases/clusters/paper.py",
        "Fraction(self.k * log_steps(self.parted) * EPSILON_UNIT, self.epsilons_nano[0])",
        "Fraction(log_steps(self.parted) * EPSILON_UNIT, self.epsilons_nano[0])",
        ("unit/releases/test_ktuples_paper.py::test_noise_of_the_centers_is_that_of_their_shares",),
    ),
    Fault(
        "centers of balls at a noisy distance that is not raised by its quantile",
        "releases/clusters/ktuples.py",
        "u = (quantile + 2) * grid",
        "u = 2 * grid",
        ("unit/releases/test_ktuples_paper.py::test_centers_are_the_twins",),
    ),
    Fault(
        "proposing tuples at public positions, paid for as secret ones",
        "releases/clusters/paper.py",
        "j = i + noise.uniform_below(self.tuples - i)",
        "j = i",
        ("unit/releases/test_ktuples_paper.py::test_proposers_are_secret_and_the_first_that_passes_wins",),
    ),
    Fault(
        "coins of a sample whose chance depends on how many records came",
        "counting/multi_radius.py",
        "self._noise.bernoulli(chances, self.rate.denominator)",
        "self._noise.bernoulli(chances, self.rate.denominator + len(points) // 100)",
        ("unit/counting/test_multi_radius.py::test_a_records_coin_has_the_public_chance_and_depends_on_nothing_else",),
    ),
    Fault(
        "keep bits at half their noise",
        "cores/filters.py",
        "sigma = max(math.sqrt(n_hat / (8 * self.size.rho2)) * ROUND_UP, 1.0)",
        "sigma = max(math.sqrt(n_hat / (32 * self.size.rho2)) * ROUND_UP, 1.0)",
        ("unit/cores/test_filters.py::test_zcdp_filter_has_the_specified_constants",),
    ),
    Fault(
        "keep bits of tuples as if one were added",
        "cores/replacement.py",
        "sigma = max(math.sqrt((self.size - 1) / (2 * self.loss.rho)) * ROUND_UP, 1.0)",
        "sigma = max(math.sqrt((self.size - 1) / (8 * self.loss.rho)) * ROUND_UP, 1.0)",
        ("unit/releases/test_clusters.py::test_keep_bits_cost_what_is_claimed",),
    ),
    Fault(
        "an average's noise by the true size",
        "releases/averages.py",
        "return _noisy_average(sums, size, self._diameter / n_hat,",
        "return _noisy_average(sums, size, self._diameter / (2 * max(n_hat, size)),",
        ("unit/releases/test_means.py::test_friendly_average_noise_covers_its_sensitivity",),
    ),
    Fault(
        "a sampler of half the deviation",
        "noise/samplers.py",
        "settings = math.isqrt(numerator // denominator) + 1, numerator / denominator\n",
        "settings = math.isqrt(numerator // denominator) + 1, numerator / denominator / 4\n",
        ("statistical/test_noise.py::test_discrete_gaussian_has_the_right_law_and_no_other",),
    ),
    # -- what leaves without noise -------------------------------------------------------------------------------------
    Fault(
        "the exact number of records in the refusal of a core's size",
        "releases/core_stage.py",
        "return Core(None, n_hat - core.offset)",
        "return Core(None, len(counts))",
        (f"{MECHANISMS}[a core's size]",),
        quick=True,
    ),
    Fault(
        "what lies outside the ball of a tracking mean without noise",
        "releases/means/tracking.py",
        "outside = view.size - inside + noise.one_gaussian(self.average.count_variance)",
        "outside = view.size - inside",
        (f"{MECHANISMS}[tracking, record outside]",),
    ),
    Fault(
        "distances of a recentered mean without noise",
        "releases/means/mean.py",
        "bins += noise.discrete_gaussian(",
        "bins += 0 * noise.discrete_gaussian(",
        ("unit/releases/test_means.py::test_distances_within_a_core_are_noisy",),
    ),
    Fault(
        "distances of a mean of all without noise",
        "releases/means/clipped_mean.py",
        "return bins + noise.discrete_gaussian(",
        "return bins + 0 * noise.discrete_gaussian(",
        (f"{OF_ALL}[600-3-skewed-10000]",),
    ),
    Fault(
        "a sum in the public ranges with the noise of one feature",
        "releases/means/box_average.py",
        "gaussian_variance(side * side * wide, rho_nano)",
        "gaussian_variance(side * side, rho_nano)",
        (f"{OF_ALL}[600-3-skewed-10000]",),
    ),
    Fault(
        "a mean of all records that stops by their true number",
        "releases/means/clipped_mean.py",
        "        if count < self.smallest:\n",
        "        if view.size < self.smallest:\n",
        (f"{FEW}[mean/recentered, clip]",),
    ),
    Fault(
        "a step nearer around the true mean",
        "releases/means/clipped_mean.py",
        "center, error = self._inside(near.value), self._length(self.nearer.sigma(squared, count))",
        "center, error = self._inside(points.mean(axis=0)), self._length(self.nearer.sigma(squared, count))",
        (f"{OF_ALL}[400-1-normal-1000000]",),
    ),
    Fault(
        "a sum in a ball with the noise of half its radius",
        "releases/means/clipped_mean.py",
        "return average.quotient(total, count, self.count_variance, ball.center, ball.squared, noise)",
        "return average.quotient(total, count, self.count_variance, ball.center, max(1, ball.squared // 4), noise)",
        (f"{OF_ALL}[400-1-normal-10000]",),
    ),
    Fault(
        "a second sum in the public ranges that is the first",
        "releases/means/clipped_mean.py",
        "            again = box_offsets(points, self.box, count, self.final.sum_nano, noise)\n",
        "            again = offsets\n",
        (f"{OF_ALL}[400-1-far-10000]",),
    ),
    Fault(
        "offsets of a mean of all that reach beyond the public ranges",
        "releases/means/box_average.py",
        "np.clip(points.astype(np.int64), box.low, box.high) - box_middle(box)",
        "points.astype(np.int64) - box_middle(box)",
        (f"{OF_ALL}[400-1-far-10000]",),
    ),
    Fault(
        "a word that tells whether all records lie in a ball",
        "releases/means/ball.py",
        'moved = None if self._holds_everything else {"value": "clipped"}',
        'moved = None if (np.abs(view.points() - center).max() ** 2 <= self.ball_squared) else {"value": "clipped"}',
        ("unit/releases/test_intervals.py::test_whether_a_ball_has_an_interval_is_a_fact_of_its_ranges",),
    ),
    Fault(
        "a noisy number of moved records that is taken for exact",
        "releases/statistics/tails.py",
        "whole = max(1.0, size)\n        return cls(min(1.0, max(0.0, outside / whole)), math.sqrt(variance) / whole)",
        "whole = max(1.0, size)\n        return cls(min(1.0, max(0.0, outside / whole)), 0.0)",
        ("unit/releases/test_tails.py::test_noise_of_the_number_of_moved_records_counts_in_proportion_to_the_range",),
    ),
    Fault(
        "moved records that never lie across the mean",
        "releases/statistics/moved.py",
        "np.fill_diagonal(up, self._far**2 + 2 * np.diag(upper))",
        "np.fill_diagonal(up, self._far**2)",
        ("unit/releases/test_tails.py::test_windows_as_bad_as_can_be_are_in_the_bounds_too",),
    ),
    Fault(
        "an interval of a count by the normal law",
        "releases/intervals.py",
        'half = count_half_width(float(sigma)) if law == "count" else TWO_SIDED * sigma',
        "half = TWO_SIDED * sigma",
        ("unit/releases/test_intervals.py::test_they_are_nested_like_the_value",),
    ),
    Fault(
        "an end of a range that is short of its outermost record",
        "stream/lattice.py",
        "return _end_of(self.lattice.step, feature, low, -1), _end_of(self.lattice.step, feature, high, 1)",
        "return _end_of(self.lattice.step, feature, low, -1), _end_of(self.lattice.step, feature, high, 1) - 1",
        ("unit/releases/test_ends.py::test_the_ends_lie_a_step_beyond_the_rounded_ranges",),
    ),
    Fault(
        "refusals of a key that another key's release ends",
        "engine/exhaustion.py",
        "refused.pop(first.stream, None)\n            self._shared",
        "refused.clear()\n            self._shared",
        ("unit/engine/test_exhaustion.py::test_a_key_that_has_room_does_not_end_the_refusals_of_another",),
    ),
    Fault(
        "streams of a group compared with its budget one by one",
        "engine/batch_budget.py",
        "pots.setdefault(each.terms.group or each.terms.stream, []).append(each)",
        "pots.setdefault(each.terms.stream, []).append(each)",
        ("unit/engine/test_batch_budget.py::test_every_filter_is_compared",),
    ),
    Fault(
        "records before the schedule that are of no use",
        "engine/first_records.py",
        "    found.usable += len(times) - sum(meant.values())\n",
        "",
        ("unit/engine/test_first_records.py::test_records_outside_of_the_schedule_are_of_use_but_not_in_another_unit",),
    ),
    Fault(
        "a ledger in memory that is said to be kept",
        "ledgers/keeping.py",
        "forgets=True)",
        "forgets=False)",
        ("unit/deployment/test_sentences.py::test_a_ledger_in_memory_is_told_by_plan_run_and_releases",),
    ),
    Fault(
        "what was left out in the bytes of a release",
        "arrays/left_out.py",
        '        del values["left_out"]\n',
        "",
        ("unit/arrays/test_left_out.py::test_what_is_left_out_is_told_and_is_no_part_of_the_release",),
    ),
    Fault(
        "a message in quarantine after one death",
        "connectors/quarantine.py",
        "if digest:",
        "if spans:",
        ("unit/connectors/test_quarantine.py::test_another_message_at_the_same_place_is_not_rejected",),
    ),
    Fault(
        "points of users whom the mask leaves out",
        "engine/records.py",
        "points = self._points_of(group, members, mask)",
        "points = self._points_of(group, members, np.ones_like(mask))",
        ("unit/engine/test_shared_users.py::test_counts_under_all_keys_add_up_to_what_users_paid_for",),
    ),
    Fault(
        "another process that draws what an account was charged for",
        "engine/shared_users.py",
        "            answer = replace(answer, charge=None, interrupted=loss)\n",
        "            pass\n",
        ("unit/engine/test_account_twin.py::test_an_account_of_all_keys_is_that_of_its_slow_twin",),
    ),
    Fault(
        "points between one and two radii of a zooming mean unclipped",
        "releases/means/zooming.py",
        "sums.clipped_sum(tiles, len(near), near, center, float(square), out)",
        "sums.clipped_sum(tiles, len(near), near, center, float(4 * square), out)",
        (f"{ZOOMING}[0-2]",),
    ),
    Fault(
        "distances of a zooming mean without noise",
        "releases/means/zooming.py",
        "found: list[int] = (bins + noise.discrete_gaussian(variance, len(bins))).tolist()",
        "found: list[int] = bins.tolist()",
        (f"{ZOOMING}[0-2]",),
    ),
    Fault(
        "a cold start after a look with all of rho",
        "releases/means/zooming.py",
        "return _built(self.look.average.sum_nano, self.box)",
        "return _built(self.loss.rho_nano, self.box)",
        (f"{ZOOMING}[0-2]",),
    ),
    Fault(
        "too many records by their exact number",
        "releases/record_gate.py",
        "return noisy > self.max_records or size > self.max_held",
        "return size > self.max_records",
        ("unit/releases/test_record_gate.py::test_audit_of_the_gate_at_max_records_at_h_and_beyond",),
    ),
    Fault(
        "too many records without a margin",
        "releases/record_gate.py",
        "return self.max_records + self.margin",
        "return self.max_records",
        ("unit/releases/test_record_gate.py::test_audit_of_the_gate_at_max_records_at_h_and_beyond",),
    ),
    Fault(
        "too many records where more is held than delta pays for",
        "releases/record_gate.py",
        "return noisy > self.max_records or size > self.max_held",
        "return noisy > self.max_records",
        ("unit/releases/test_record_gate.py::test_audit_of_the_gate_at_max_records_at_h_and_beyond",),
    ),
    Fault(
        "the exact number of records in the refusal of too many",
        "releases/record_gate.py",
        'return Outcome("too_many")',
        'return Outcome("too_many", count=view.size)',
        ("unit/releases/test_record_gate.py::test_a_refusal_reveals_nothing_and_refunds_what_was_not_started",),
    ),
    Fault(
        "the gate of too many records is not paid for",
        "releases/record_gate.py",
        "        charge.start(self.gate.loss)\n",
        "",
        ("unit/releases/test_record_gate.py::test_a_refusal_reveals_nothing_and_refunds_what_was_not_started",),
    ),
    Fault(
        "a pane that is let go of because others hold too much",
        "releases/record_gate.py",
        "if self._sizes[pane] <= self._max_size:",
        "if sum(self._sizes.values()) <= self._max_size:",
        (
            "unit/releases/test_record_gate.py::test_counter_holds_what_its_naive_twin_holds_and_lets_go_of_a_pane_that_alone_has_too_many",
        ),
    ),
    Fault(
        "records of a flooded window that are cut instead of refused",
        "releases/record_gate.py",
        "GatedView(size, None if size > self._max_size else self.inner.view(wanted))",
        "GatedView(min(size, self._max_size), self.inner.view(wanted))",
        (
            "unit/releases/test_record_gate.py::test_counter_holds_what_its_naive_twin_holds_and_lets_go_of_a_pane_that_alone_has_too_many",
        ),
    ),
    Fault(
        "users whose answers are taken for disjoint",
        "releases/answers.py",
        '        if self.unit == "user":\n            return (tuple',
        '        if self.unit == "nobody":\n            return (tuple',
        ("unit/engine/test_answers.py::test_disjoint_answers_cost_the_dearest_and_others_their_sum",),
    ),
    Fault(
        "intervals that share an end and are taken for disjoint",
        "stream/selection.py",
        "return any(low <= coordinate <= high for low, high in self.spans)",
        "return any(low <= coordinate < high for low, high in self.spans)",
        ("unit/stream/test_selection.py::test_overlaps_are_those_of_all_records[0]",),
    ),
    Fault(
        "texts that no condition names and that count as the first",
        "stream/selection.py",
        "codes.get(text, -1.0)",
        "codes.get(text, 0.0)",
        ("unit/engine/test_texts.py::test_texts_stand_beside_numbers_and_choose_records[event]",),
    ),
    Fault(
        "answers whose stages come back though others have started theirs",
        "releases/answers.py",
        "                total[0] += stage.rho_nano\n",
        "                total[0] = stage.rho_nano\n",
        ("unit/engine/test_answers.py::test_what_an_answer_does_not_start_comes_back_for_the_whole_window",),
    ),
    Fault(
        "a floor that looks at the exact number of records",
        "releases/averages.py",
        "if count < self.smallest:",
        "if size < self.smallest:",
        (f"{MECHANISMS}[ball, at its floor]",),
    ),
    # -- who counts, and how far ---------------------------------------------------------------------------------------
    Fault(
        "a clip that is forgotten",
        "releases/averages.py",
        "sums.clipped_sum(tiles, len(mask), mask, center, float(radius_squared), out)",
        "sums.clipped_sum(tiles, len(mask), mask, center, float(2**52), out)",
        (f"{MECHANISMS}[ball, far record]",),
        quick=True,
    ),
    Fault(
        "a core that keeps everyone",
        "cores/filters.py",
        "return Core(noise.threshold_bits(counts, n, threshold, sigma), n_hat - self.offset)",
        "return Core(np.ones(n, np.bool_), n_hat - self.offset)",
        ("unit/cores/test_filters.py::test_zcdp_filter_keeps_friends_and_drops_strangers",),
    ),
    Fault(
        "a check of tuples that is not paid for",
        "releases/clusters/tuples.py",
        "start(self.loss)\n        return self._check.passes",
        "return self._check.passes",
        ("unit/releases/test_match_check.py::test_tuples_that_do_not_match_cost_a_twentieth_and_no_delta",),
    ),
    Fault(
        "a check of tuples at half its noise",
        "releases/clusters/tuples.py",
        "return DiameterCheck(self.rho_nano, _TWO",
        "return DiameterCheck(4 * self.rho_nano, _TWO",
        ("unit/releases/test_match_check.py::test_the_check_equals_its_twin",),
    ),
    Fault(
        "a core of tuples that is paid for whatever the check says",
        "releases/clusters/tuples.py",
        "if not is_search and self.check and not self.check.passes(counts.sum(), noise, start):",
        "if not is_search and self.check and self.check.passes(counts.sum(), noise, start) is None:",
        ("unit/releases/test_match_check.py::test_tuples_that_do_not_match_cost_a_twentieth_and_no_delta",),
    ),
    Fault(
        "a core of tuples that keeps everyone",
        "cores/replacement.py",
        "return Core(noise.threshold_bits(counts, self.size, threshold, sigma), None)",
        "return Core(np.ones(len(counts), np.bool_), None)",
        ("unit/releases/test_tuples.py::test_outlier_tuples_are_left_out",),
    ),
    Fault(
        "a size below the true one more often than delta pays for",
        "cores/filters.py",
        "return n + self.offset + noise.one_gaussian(self.variance)",
        "return n + noise.one_gaussian(self.variance)",
        ("unit/cores/test_filters.py::test_size_is_noisy_with_the_right_deviation",),
    ),
    Fault(
        "a size above the true one more often than delta pays for",
        "releases/averages.py",
        "n_hat = size - self.offset + noise.one_gaussian(self.size_variance)",
        "n_hat = size + noise.one_gaussian(self.size_variance)",
        ("unit/releases/test_means.py::test_friendly_average_of_few_points_says_no",),
    ),
    Fault(
        "sums that go on in an int64 for ever",
        "stream/totals.py",
        "if self._held + rows > self.max_rows:",
        "if self._held + rows > 2**80:",
        ("unit/stream/test_totals.py::test_one_record_more_in_a_window_of_one_part_does_not_flip_the_mean",),
        quick=True,
    ),
    Fault(
        "a part of a window that is added in one go",
        "stream/totals.py",
        "step = totals.max_rows // lanes",
        "step = max(1, len(tiles))",
        ("unit/stream/test_totals.py::test_one_record_more_in_a_window_of_one_part_does_not_flip_the_mean",),
    ),
    Fault(
        "a user's sum that is doubled",
        "stream/contributions.py",
        "    whole = numerators // denominators\n    rest = numerators - whole * denominators\n"
        "    return np.asarray(whole + (rest >= denominators - rest), np.int64)",
        "    return np.asarray((2 * numerators + denominators) // (2 * denominators), np.int64)",
        ("unit/stream/test_totals.py::test_quotients_are_rounded_without_doubling",),
    ),
    # -- what is paid --------------------------------------------------------------------------------------------------
    Fault(
        "the filter's delta is not paid where the size stops a window",
        "cores/filters.py",
        "first = PrivacyLoss(self.size.first_nano, self.loss.delta_femto)",
        "first = PrivacyLoss(self.size.first_nano)",
        ("audit/test_mechanisms.py::test_a_window_that_its_size_stops_pays_the_filters_delta",),
        quick=True,
    ),
    Fault(
        "a stage that is not counted as started",
        "ledgers/base.py",
        "        self._started = started\n",
        "        self._started = started if started.delta_femto else self._started\n",
        ("unit/releases/test_means.py::test_a_warm_window_is_right_and_its_noise_is_what_it_says",),
    ),
    Fault(
        "a sum that nobody pays for",
        "releases/averages.py",
        "        start(PrivacyLoss(self.sum_nano))\n        return",
        "        start(PrivacyLoss())\n        return",
        ("unit/releases/test_means.py::test_a_warm_window_is_right_and_its_noise_is_what_it_says",),
    ),
    Fault(
        "noise before its charge",
        "engine/closing.py",
        "        results = self._outbox.charge(asked.requests, acknowledging=acknowledging)\n",
        "        self._noise.uniforms(1)\n"
        "        results = self._outbox.charge(asked.requests, acknowledging=acknowledging)\n",
        (f"{STREAM}_fault_charge_after_noise",),
    ),
    Fault(
        "the last pane of a window is not charged",
        "engine/closing.py",
        "return Request(WindowKey(window.open_ms, window.close_ms), loss, blocks)",
        "return Request(WindowKey(window.open_ms, window.close_ms), loss, blocks[: max(1, len(blocks) - 1)])",
        (f"{STREAM}_fault_a_pane_that_is_not_charged",),
    ),
    Fault(
        "a refund after a crash",
        "ledgers/base.py",
        "return PrivacyLoss() if self.is_redraw else self.loss - self._started",
        "return self.loss - self._started",
        ("unit/engine/test_answers.py::test_a_second_draw_gives_nothing_back",),
    ),
    Fault(
        "a second answer's refund, chosen by its value",
        "ledgers/sqlite/ledger.py",
        "if found is not None and found.draws > 1:",
        "if found is not None and found.draws > 2:",
        ("unit/ledgers/test_ledgers.py::TestSQLite",),
    ),
    Fault(
        "a stream of a group that sees its own charges alone",
        "ledgers/groups.py",
        "(spent + self.spent(block) + loss).fits(capacity)",
        "(spent + loss).fits(capacity)",
        ("unit/ledgers/test_groups.py::test_charges_and_refunds_agree_with_one_number_for_each_filter",),
    ),
    Fault(
        "users who count under all of their keys and pay for some",
        "engine/shared_users.py",
        "        return np.isin(keys, decision.counted[key])\n",
        "        return np.ones(len(keys), np.bool_)\n",
        ("unit/engine/test_shared_users.py::test_counts_under_all_keys_add_up_to_what_users_paid_for",),
    ),
    Fault(
        "a user under one key too many",
        "stream/key_choice.py",
        "        counts[[row for _, row in sorted(rows)[most:]]] = False\n",
        "        counts[[row for _, row in sorted(rows)[most + 1 :]]] = False\n",
        ("unit/engine/test_shared_users.py::test_every_user_counts_under_so_many_keys_and_pays_once",),
    ),
    Fault(
        "a window of all keys for the price of one",
        "engine/shared_users.py",
        "        loss = request.loss * self._most\n",
        "        loss = request.loss\n",
        ("unit/engine/test_shared_users.py::test_every_user_counts_under_so_many_keys_and_pays_once",),
    ),
    Fault(
        "another choice of keys after a crash in mid-window",
        "engine/shared_users.py",
        "answer.charge is not None and answer.charge.is_redraw:\n",
        "answer.charge is not None and not here:\n",
        ("unit/engine/test_shared_users.py::test_after_a_crash_between_two_keys_the_others_are_interrupted",),
    ),
    Fault(
        "a record that counts twice in the search for keys",
        "engine/discovering.py",
        "        self._finder.take(plain, rows.arrivals)\n",
        "        self._finder.take(plain, rows.arrivals)\n        self._finder.take(plain, rows.arrivals)\n",
        (f"{DISCOVERY}::test_a_record_loses_what_window_and_search_cost_and_no_more",),
        quick=True,
    ),
    Fault(
        "a budget that does not hold the search for keys",
        "config/job.py",
        "(answers.loss * times + finding).fits(capacity)",
        "(answers.loss * times).fits(capacity)",
        ("unit/config/test_key_discovery.py::test_what_does_not_go_together_is_said_in_one_sentence",),
    ),
    Fault(
        "a guarantee without the search for keys",
        "engine/closing.py",
        "        spent=(spent + job.paid_beside).as_dict(),\n",
        "        spent=spent.as_dict(),\n",
        (f"{DISCOVERING}::test_what_a_record_pays_is_on_every_line",),
    ),
    Fault(
        "a filter of its own for the search for keys",
        "config/job.py",
        "        group = part_name(stream.name, FINDER)  # users",
        "        group = None  # users",
        (f"{DISCOVERING}::test_searches_and_windows_of_a_user_share_one_filter",),
    ),
    Fault(
        "a key that is answered after its period",
        "engine/discovering.py",
        "self._close_first(behind, now_ms, bound)",
        "self._close_first(behind, now_ms)",
        (f"{DISCOVERING}::test_a_file_is_answered_as_the_twin_says",),
    ),
    Fault(
        "late records that count in the search for keys",
        "engine/discovering.py",
        "        return rows._replace(windows=found.panes).pick(found.fine)\n",
        "        return rows._replace(windows=found.panes).pick(found.panes >= 0)\n",
        (f"{DISCOVERING}::test_a_live_stream_that_is_stopped_anywhere_is_answered_as_the_twin_says",),
    ),
    Fault(
        "other keys after a restart than before",
        "engine/discovering.py",
        "        self._ledger.keep_setting(self._setting(period), json.dumps(sorted(found)))\n"
        "        kept = self._keys_kept(period)\n",
        "        kept = tuple(sorted(found))\n",
        (f"{DISCOVERING}::test_the_keys_of_a_period_are_those_of_the_ledger",),
    ),
    # -- streams -------------------------------------------------------------------------------------------------------
    Fault(
        "a record that counts as often as it is delivered",
        "formats/positions.py",
        "            new &= (run < 0) | (ordered > self._ends[run])\n",
        "            new |= run < 0\n",
        (f"{STREAM}_fault_a_duplicate_that_counts",),
    ),
    Fault(
        "an element that takes what it lacks from the one before it",
        "formats/fields.py",
        "            around = [outer[owner] for owner in owners]\n",
        "            around = column[-1:] + column[:-1]\n",
        ("unit/formats/test_fields.py::test_elements_inherit_time_user_and_key_where_they_lack_them",),
    ),
    Fault(
        "an end of a range that admission knows and a sensitivity does not",
        "releases/statistics/columns.py",
        "        return cls(index, grid.features[index], *grid.ends(grid.features[index]))\n",
        "        low, high = grid.ends(grid.features[index])\n"
        "        return cls(index, grid.features[index], low, high - 1)\n",
        ("unit/releases/test_ends.py::test_a_record_on_the_ends_moves_sums_by_at_most_their_sensitivity",),
    ),
    Fault(
        "a range that is that of the field before its factor",
        "stream/lattice.py",
        "                cells = cells * np.array([feature.factor for feature in self.features])\n",
        "                pass\n",
        ("unit/config/test_fields.py::test_a_factor_comes_before_the_range_and_after_missing_numbers",),
    ),
    Fault(
        "a clock made of records' timestamps",
        "engine/engine.py",
        "                self._records.add(batch, found, rows, self._progress.next, identified=identified)\n",
        "                self._records.add(batch, found, rows, self._progress.next, identified=identified)\n"
        "                self._acknowledge_and_close(int(batch.times_ms.max()))\n",
        (f"{STREAM}_fault_a_clock_made_of_timestamps",),
    ),
    Fault(
        "fresh noise after a crash, as nothing was kept",
        "ledgers/sqlite/ledger.py",
        "        for answer in answers:\n            self._seal(tables, answer)\n",
        "        for answer in answers[:0]:\n            self._seal(tables, answer)\n",
        (f"{STREAM}_fault_fresh_noise_after_a_crash",),
    ),
    Fault(
        "an older copy of the ledger is taken",
        "ledgers/rollback_guard.py",
        "        if count > seq:\n",
        "        if count > seq + 10**9:\n",
        (f"{STREAM}_fault_an_older_copy_of_the_ledger",),
    ),
    # -- windows without records, and noise there is not ---------------------------------------------------------------
    Fault(
        "windows without records with a value once in 750",
        "releases/averages.py",
        "return min_gaussian(self.count_variance, FALSE_RELEASE / self.parts)",
        "return max(1, math.ceil(3 * math.sqrt(self.count_variance)))",
        ("statistical/test_empty_windows.py::test_a_room_that_is_empty_for_months_is_answered_with_refusals",),
        quick=True,
    ),
    Fault(
        "quantiles of an empty window",
        "releases/statistics/quantiles.py",
        "return max(min_gaussian(self.variance), math.ceil(max(needed)))",
        "return max(1, math.ceil(3 * math.sqrt(self.variance)))",
        ("statistical/test_empty_windows.py::test_a_room_that_is_empty_for_months_is_answered_with_refusals",),
    ),
    Fault(
        "noise that cannot be drawn is found out when a window closes",
        "releases/averages.py",
        "if self.sum_nano < MIN_NANO or self.count_nano < 1:",
        "if self.sum_nano < 1 or self.count_nano < 1:",
        ("unit/releases/test_drawable_noise.py::test_every_ball_can_be_had_with_the_smallest_rho",),
    ),
    # -- what decides by data ------------------------------------------------------------------------------------------
    Fault(
        "answers begin with the first record",
        "engine/engine.py",
        "            rows = self._progress.open_rows(batch, found)\n",
        "            if arrivals is not None and len(arrivals):\n                self.begin(int(arrivals.min()))\n"
        "            rows = self._progress.open_rows(batch, found)\n",
        ("unit/engine/test_first_window.py::test_one_record_more_does_not_move_the_first_window",),
        quick=True,
    ),
    Fault(
        "the reason of a refusal by the exact number of records",
        "releases/means/mean.py",
        "        if rough is None:\n            return Outcome(self.refusal_reason(core.count), count=core.count)",
        "        if rough is None:\n            return Outcome(self.refusal_reason(view.size), count=core.count)",
        ("unit/releases/test_reasons.py::test_the_reason_is_a_function_of_what_is_released",),
    ),
    # -- what a replay on the neighbor notices -------------------------------------------------------------------------
    Fault(
        "one noise vector for all parts of a tree's Lloyd step",
        "releases/clusters/tree_centers.py",
        "sigma, counts = np.full_like(centers, np.nan), np.zeros(k, np.int64)\n",
        "sigma, counts = np.full_like(centers, np.nan), np.zeros(k, np.int64)\n        " + SAME_NOISE,
        (f"{REPLAY}[centers/tree]",),
    ),
    Fault(
        "a tree's Lloyd step with the noise of half its radii",
        "releases/clusters/tree_centers.py",
        "int(sizes[j]), centers[j], squared[j], noise, begin()",
        "int(sizes[j]), centers[j], max(1, squared[j] // 4), noise, begin()",
        (f"{REPLAY}[centers/tree]",),
    ),
    Fault(
        "radii of a tree's parts by their true records",
        "releases/clusters/tree_centers.py",
        "radii = np.maximum(1.0, np.ceil(SLACK * reaches(stand, centers, REACHED)))",
        "radii = np.full(len(centers), 1.0 + 2 * np.abs(points - centers[0]).max(initial=0.0))",
        (f"{REPLAY}[centers/tree]",),
    ),
    Fault(
        "components of a mixture by a tree that share their noise",
        "releases/clusters/tree_mixtures.py",
        "begin, points = in_parts(start), view.points()\n",
        "begin, points = in_parts(start), view.points()\n        " + SAME_NOISE,
        (f"{REPLAY}[mixtures/tree]",),
    ),
    Fault(
        "answers of a window that share their noise",
        "releases/answers.py",
        "        found = []\n        for i, answer in enumerate(self.answers):\n",
        "        " + SAME_NOISE + "        found = []\n        for i, answer in enumerate(self.answers):\n",
        (f"{REPLAYED}[several answers]",),
    ),
    Fault(
        "a shared account that gets back the most that a key has not used",
        "engine/shared_users.py",
        "rho = min(loss.rho_nano for loss in decision.unused.values())",
        "rho = max(loss.rho_nano for loss in decision.unused.values())",
        (f"{REPLAYED}[shared keys, one of which is refused]",),
    ),
    Fault(
        "a covariance whose sample's rate follows the true number of records",
        "releases/statistics/clipped.py",
        "sampled_rows(view.size, Fraction(self.sample, size), noise)",
        "sampled_rows(view.size, Fraction(self.sample, view.size), noise)",
        (f"{REPLAY}[covariance/clipped]",),
    ),
    Fault(
        "learned scales whose sample's rate follows the true number of records",
        "releases/statistics/learned.py",
        "sampled_rows(len(rows), Fraction(wanted, self.size_hint), noise)",
        "sampled_rows(len(rows), Fraction(wanted, max(wanted, len(rows))), noise)",
        (f"{REPLAY}[mean/recentered, learned]",),
    ),
]


_KERNELS = """
__path__ = [{path!r}]
with open(__path__[0] + "/__init__.py") as file:
    exec(compile(file.read(), file.name, "exec"))
"""


def copied(folder: Path) -> Path:
    """The package in a folder of its own, with the tests beside it.

    Compiled code stays where it is, so that it is compiled once: no fault is planted into a kernel.
    """
    source = REPOSITORY / "fcstream"
    shutil.copytree(source, folder / "fcstream", ignore=shutil.ignore_patterns("__pycache__", "_kernels"))
    (folder / "fcstream" / "_kernels").mkdir()
    (folder / "fcstream" / "_kernels" / "__init__.py").write_text(_KERNELS.format(path=str(source / "_kernels")))
    for name in ("tests", "pyproject.toml"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


@contextlib.contextmanager
def planted(fault: Fault, folder: Path) -> Iterator[None]:
    """The fault stands in the copy.

    Raises
    ------
    LookupError
        Its place is not there once.
    """
    path = folder / "fcstream" / fault.file
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise LookupError(f"{fault.name!r}: its text stands {text.count(fault.old)} times in {fault.file}")
    stale = path.parent / "__pycache__"
    try:
        path.write_text(text.replace(fault.old, fault.new))
        shutil.rmtree(stale, ignore_errors=True)
        yield
    finally:
        path.write_text(text)
        shutil.rmtree(stale, ignore_errors=True)


# Copies differ in the package only: what it imports from elsewhere is loaded once, by a process that is forked.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "hypothesis.strategies",
        "mpmath",
        "msgspec",
        "numba",
        "numpy",
        "pytest",
        "scipy.optimize",
        "scipy.special",
        "scipy.stats",
    ]
)


def _run_tests(tests: Sequence[str], folder: Path) -> None:
    """pytest in a process of its own that imports the copy; its output goes to a file there."""
    gc.freeze()  # what came with the fork is no garbage
    os.dup2(os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    os.dup2(1, 2)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    import pytest

    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:anyio", "-rf", "--assert=plain"]
    sys.exit(pytest.main([*options, *(f"tests/{test}" for test in tests)]))


def failures(tests: Sequence[str], folder: Path) -> list[str]:
    """Which of some tests fails first in a copy; none if all pass.

    Raises
    ------
    RuntimeError
        They could not be run.
    """
    process = _FORKS.Process(target=_run_tests, args=(tests, folder))
    process.start()
    process.join(900)
    if process.exitcode is None:
        process.kill()
        process.join()
    told = (folder / "output").read_text()
    if process.exitcode not in (0, 1):
        raise RuntimeError(f"{' '.join(tests)} cannot be run:\n{told[-5000:]}")
    found = [re.sub(r" - .*", "", line)[len("FAILED ") :] for line in told.splitlines() if line[:7] == "FAILED "]
    if (process.exitcode == 1) != bool(found):
        raise RuntimeError(f"{' '.join(tests)} ended without a verdict:\n{told[-3000:]}")
    return found


def caught_by(fault: Fault, folder: Path) -> str | None:
    """The test that notices the fault in a copy; None if all pass."""
    with planted(fault, folder):
        found = failures(fault.tests, folder)
    return found[0] if found else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names")
    parser.add_argument("--list", action="store_true", help="name them and their tests, plant nothing")
    asked = parser.parse_args(arguments)
    chosen = [fault for fault in FAULTS if not asked.words or any(word in fault.name for word in asked.words)]
    if asked.list:
        for fault in chosen:
            print(f"{fault.name} ({fault.file}): {', '.join(fault.tests)}")
        return 0
    missed, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = copied(Path(name))
        sound = failures(list(dict.fromkeys(test for fault in chosen for test in fault.tests)), folder)
        if sound:
            print(f"{sound[0]} fails without any fault")
            return 1
        for fault in chosen:
            try:
                test = caught_by(fault, folder)
                told = "NOT CAUGHT" if test is None else f"caught by {test}"
            except (LookupError, RuntimeError) as error:
                test, told = None, f"NOT CAUGHT, {error}"
            missed += test is None
            print(f"{fault.name}: {told}", flush=True)
    seconds = time.monotonic() - began
    print(f"{len(chosen) - missed} of {len(chosen)} faults caught, in {seconds:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
