"""What every kind of release is, in sentences for readers of a report: mechanism, sources, noise and bias.

One entry for each line of `fcstream.releases.registry.KINDS`; a test checks that none is missing, and that what is
cited exists. Kinds of other packages have no entry: a report says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .options import Options
from .registry import method_of

CKS20 = "Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy (NeurIPS 2020)"
FC22 = (
    "Tsfadia, Cohen, Kaplan, Mansour, Stemmer: FriendlyCore: Practical Differentially Private Aggregation (ICML 2022)"
)
KT21 = "Cohen, Kaplan, Mansour, Stemmer, Tsfadia: Differentially-Private Clustering of Easy Instances (ICML 2021)"
BSV22 = "Boedihardjo, Strohmer, Vershynin: Covariance's Loss is Privacy's Gain (2022)"
OURS = "the authors of fcstream; proof in docs/design"

_EXACT_NOISE = "Noise is a discrete Gaussian on whole numbers, drawn exactly."
_OF_THE_CORE = (
    "Records outside of the core do not count, and far ones are moved to the border of a ball: on skewed data the "
    "value lies on the side of the bulk. `sigma` does not contain that error. `tail_share`, where it is released, "
    "tells how many lay outside, and not how far."
)
_MEASURED = (
    "Measured on 1,000 windows of 600 normal readings: value plus or minus 2 sigma held the mean of the records in "
    "928, 3 sigma in 988 (docs/concepts/releases.md)."
)


@dataclass(frozen=True, slots=True)
class KindDescription:
    """One kind of release, described for readers who do not know the program.

    Attributes
    ----------
    what : str
        What a window publishes, as a phrase.
    mechanism : str
        How it is computed, in sentences.
    bias : str
        What errors there are besides the noise.
    sources : tuple of str
        Papers, by their authors and titles; what is not from a paper is said.
    specification, proofs, errata : tuple of str
        Sections of docs/design.
    product : str
        What the OpenDP Deployments Registry calls such a data product.
    """

    what: str
    mechanism: str
    bias: str
    sources: tuple[str, ...]
    specification: tuple[str, ...]
    proofs: tuple[str, ...]
    errata: tuple[str, ...] = ()
    product: str = "Summary statistics"


_MEAN = "one number for each feature: the mean of the normal records"
_RECENTERED = (
    "A core of records that lie near most others is found privately (FriendlyCore). Its friendly average gives a "
    "rough center, a noisy histogram of distances a radius; then two noisy means of the core, clipped to balls "
    "around better and better centers, are taken."
)
_CLIPPED = (
    "one number for each feature: the mean of all records, far ones moved nearer",
    "A noisy mean of all records, clamped to the public ranges, gives a center; where the ranges are very wide, means "
    "in a few public balls lead nearer. A noisy histogram of all records' distances from there gives a radius, and a "
    "second noisy mean is taken of all, far ones moved to the border of that ball. The first mean tells the interval.",
    "No record is left out. Far ones are moved to a border at which noise and the error of that are about alike: "
    "on skewed data the value lies on the side of the bulk. `sigma` does not contain that error, `interval` does, "
    "whatever the records are; `tail_share` tells how many lay outside.",
)
"""What is released, the mechanism and the bias of means that leave no record out."""
_CENTERS = KindDescription(
    "the centers of k groups of records, with noisy numbers of records",
    "Coins divide the records into many shards, and a clustering program finds k centers in each. Where the shards "
    "agree, by a private test, a noisy average of their answers is taken, and one noisy Lloyd step over all records "
    "refines it. If they do not agree the window is refused. One record replaces the answer of one shard.",
    "Records outside of the public ball do not count, and the others are clipped around their center, so that the "
    "center of a skewed group lies on the side of the bulk. Centers are clipped to the public ranges (the release "
    "says which). Groups that are small or overlap may be missed or merged; `sigma` does not contain that.",
    (FC22, KT21, CKS20),
    ("6.12", "6.2", "6.5", "6.11"),
    ("7.1", "7.2", "7.8"),
    ("1.2",),
)
_TREE = (
    "Zhang, Xiao, Xie: PrivTree: A Differentially Private Algorithm for Hierarchical Decompositions (SIGMOD 2016)",
    "Cormode, Procopiuc, Srivastava, Shen, Yu: Differentially Private Spatial Decompositions (ICDE 2012)",
    CKS20,
    OURS,
)
_BOXES = (
    "The public ranges are divided into boxes, again and again where noisy numbers of records are large; each last box "
    "gets a noisy mean"
)
_MIXTURES = KindDescription(
    "k groups of records, each with its mean, weight and covariance matrix",
    "Coins divide the records into two halves. From shards of one half, groups are found as for centers; from the "
    "other half, noisy counts, sums and second moments of each group are taken. A record pays for one half only.",
    "Records are clipped to the public radius `spread` of a group, so that covariances of wider groups come out too "
    "small; negative directions of a noisy covariance become 0. Groups that are small or overlap may be missed; "
    "`sigma` does not contain that.",
    (KT21, FC22, CKS20),
    ("6.14", "6.2", "6.5"),
    ("7.1", "7.2", "7.9"),
    ("4.5",),
    "Machine learning model",
)
_TREE_CENTERS = KindDescription(
    "the centers of k groups of records, with noisy numbers of records",
    f"{_BOXES}. K-means runs on these released means, which costs nothing more, and one noisy Lloyd step over all "
    f"records refines its centers. {_EXACT_NOISE}",
    "In the last step records are clipped to a released ball around their center, so that the center of a skewed "
    "group lies on the side of the bulk. Small groups may be missed or merged, and a center with too few records "
    "stays where the boxes put it; `sigma` does not contain that.",
    _TREE,
    ("6.16", "6.15"),
    ("7.10",),
)
_TREE_MIXTURES = KindDescription(
    "k groups of records, each with its mean, weight and covariance matrix",
    f"{_BOXES}, and k-means on these released means finds the groups. Then noisy counts, sums and second moments of "
    "the records nearest to each center are taken. Where groups overlap, a mixture of Gaussians is fitted to these "
    f"released numbers, which costs nothing more. {_EXACT_NOISE}",
    "A record belongs to the nearest center, so where groups overlap each is cut off, unless boxes are fine enough for "
    "a fit to put it right; records are clipped to a released ball, and negative directions of a noisy covariance "
    "become 0. Small groups may be missed; `sigma` does not contain that, and is not known of a fit.",
    _TREE,
    ("6.18", "6.15", "6.21"),
    ("7.10",),
    (),
    "Machine learning model",
)

_CELLS = KindDescription(
    "a few weighted points that stand for all records",
    "Noise is added to the first and second moments of the records, then to a number and a sum in every cell of "
    "a public partition. What comes out is moved to the nearest allowed points, which costs nothing.",
    "The mean of each cell is shrunk towards the mean of all records and moved into the public set, and weights "
    "are made to be at least 0 and to add up: points near the border are pulled inwards, and small groups vanish.",
    (BSV22, CKS20, OURS),
    ("9.6",),
    ("9.2",),
    (),
    "Synthetic data",
)
_TREE_POINTS = KindDescription(
    "made-up rows that lie where the records do",
    f"{_BOXES}. Rows are drawn from the boxes by their numbers and means, which costs nothing more. {_EXACT_NOISE}",
    "Where a box holds few records, rows are spread over it with the right mean but any shape; places with hardly "
    "any records get no rows. How features move together within a box is not kept.",
    _TREE,
    ("9.9", "6.15"),
    ("7.10",),
    (),
    "Synthetic data",
)


def _either(
    other: KindDescription,
    tree: KindDescription,
    what: str | None = None,
    called: str = "tuples",
    section: str = "6.20",
) -> KindDescription:
    """Describe a kind whose method settings choose, which `plan` tells."""
    return KindDescription(
        what or other.what,
        f"One of two methods, by settings alone; `plan` says which. A tree: {tree.mechanism} Or {called}: "
        f"{other.mechanism}",
        f"By a tree: {tree.bias} By {called}: {other.bias}",
        tuple(dict.fromkeys((*other.sources, *tree.sources))),
        (section, *other.specification, *tree.specification),
        (*other.proofs, *tree.proofs),
        other.errata,
        other.product,
    )


DESCRIPTIONS = {
    "mean/recentered": KindDescription(
        _MEAN,
        _RECENTERED,
        f"{_OF_THE_CORE} {_MEASURED}",
        (FC22, CKS20, OURS),
        ("5.4", "4.2"),
        ("5.4", "3.2", "5.1", "5.3"),
    ),
    "mean/friendly": KindDescription(
        _MEAN,
        "FC_Avg of the FriendlyCore paper: a core of records that lie near most others is found with a tenth of rho, "
        "then the noisy average of that core is taken.",
        _OF_THE_CORE,
        (FC22, CKS20),
        ("5.3", "4.2", "5.1"),
        ("5.4", "3.2", "5.1"),
    ),
    "mean/ball": KindDescription(
        "one number for each feature: the mean of all records, far ones moved to the border of a public ball",
        "Every record is clipped to a ball with a public center and radius; noise is added to the sum of what is "
        "left and to the number of records.",
        "Records outside of the public ball are moved to its border, so the value is pulled towards the public "
        "center; there is no such bias if all records lie inside.",
        (CKS20, OURS),
        ("5.2",),
        ("5.3",),
    ),
    "mean/tracking": KindDescription(
        _MEAN,
        "A window starts from the center and radius that the window before released: noise is added to the sum and "
        "number of the records inside that ball. The first window, and one after which too few records lay inside, "
        "starts cold: with a radius as a `recentered` mean; without one from a noisy mean clipped to the public ranges "
        "and noisy distances from it, after which the ball shrinks onto the records over the next windows.",
        "Records outside of the ball are left out (without a radius: those within twice its radius are moved to its "
        "border): where values move faster than the ball, the value lags behind until a cold start. On skewed data it "
        "lies on the side of the bulk. `sigma` does not contain that.",
        (FC22, CKS20, OURS),
        ("5.5", "5.16", "5.4"),
        ("5.5", "5.10", "5.4"),
    ),
    "mean/auto": KindDescription(
        _CLIPPED[0],
        "One of two methods, by settings alone; `plan` says which. "
        f"Recentered: {_CLIPPED[1]} Where records are left out: {_RECENTERED} "
        "Tracking: a window starts from the center and radius that the window before released, the first "
        "one from the public ranges: noise is added to numbers of records by their distance, from "
        "which the next radius follows, and to the mean of those within twice the radius, moved to the ball's border.",
        f"Recentered: {_CLIPPED[2]} Where records are left out: {_OF_THE_CORE} "
        "Tracking: records beyond twice the ball's radius are left out and those beyond it "
        "moved to its border, so the value lags behind where records move faster than the ball. `sigma` does not "
        "contain that.",
        (FC22, CKS20, OURS),
        ("5.17", "5.18", "5.4", "5.16"),
        ("5.11", "5.4", "5.10"),
    ),
    "mean/basic": KindDescription(
        _MEAN,
        "A core in which all records are friends with certainty is found by random keep bits, and its noisy average "
        "taken, both in (epsilon, delta) accounting, which is converted to rho and charged in one stage.",
        _OF_THE_CORE,
        (FC22, CKS20),
        ("5.7", "4.6"),
        ("4.2", "5.2"),
        ("1.4",),
    ),
    "count": KindDescription(
        "the number of records",
        f"Noise is added to the number. {_EXACT_NOISE}",
        "None: the noise has the mean 0, and nothing is rounded up to 0, so a number may be negative.",
        (CKS20,),
        ("5.9",),
        ("6.1",),
    ),
    "sum": KindDescription(
        "the sum of every feature over the records of the window",
        "Noise is added to the sums, or to the sums about the middle of each public range and to the number of "
        f"records, whichever is nearer by public numbers. {_EXACT_NOISE}",
        "None from noise. Records with a value outside of the public range are rejected before, and so are missing; "
        "with `per_user` = 'sum' a user's sum beyond `user_bounds` is cut.",
        (CKS20, OURS),
        ("5.11",),
        ("6.4",),
    ),
    "histogram": KindDescription(
        "the number of records in each of some declared bins, empty ones too",
        f"Noise is added to the number of every declared bin, whatever it holds. {_EXACT_NOISE}",
        "None: the noise has the mean 0, and nothing is rounded up to 0. For a small bin the noise is large in "
        "proportion.",
        (CKS20,),
        ("5.9",),
        ("6.1",),
    ),
    "total": KindDescription(
        "the total since an epoch began, and that of the last window, after every window",
        "Correlated noise is added so that one record pays once for all totals of its epoch, by a factorization of "
        f"the matrix of running sums. {_EXACT_NOISE}",
        "None from noise. Records of a window that is refused never come into later totals, which then are too small.",
        (
            "Fichtenberger, Henzinger, Upadhyay: Constant Matters: Fine-grained Error Bound on Differentially "
            "Private Continual Observation (ICML 2023)",
            CKS20,
            OURS,
        ),
        ("5.13",),
        ("6.5",),
    ),
    "frequent": KindDescription(
        "the texts that many records have, and noisy numbers of those records",
        "Noise is added to the number of every text that occurs, and only texts whose noisy number reaches a "
        f"threshold are told; delta pays for a text that one record alone has. {_EXACT_NOISE}",
        "Texts below the threshold are not told, and one just above is told when its noise was high: the numbers of "
        "rare texts that are told come out too large. Whoever shares a text with few others does not appear.",
        (
            "Korolova, Kenthapadi, Mishra, Ntoulas: Releasing Search Queries and Clicks Privately (WWW 2009)",
            "Rogers et al. 2020, as specification 5.12 cites it",
            "Desfontaines, Voss, Gipson, Mandayam: Differentially Private Partition Selection (PoPETs 2022)",
            OURS,
        ),
        ("5.12",),
        ("6.6",),
    ),
    "quantiles": KindDescription(
        "the values below which given shares of the records lie",
        "Each value is drawn from the whole public range by the exponential mechanism, nearer ranks being more "
        "likely, with exact probabilities.",
        "Noise is in ranks (`rank_sigma`), not in values: where few records lie, as in a tail, a value may be far "
        "off. In small windows values are drawn towards the middle of the public range.",
        (
            "Smith: Privacy-preserving statistical estimation with optimal convergence rates (STOC 2011)",
            "Cesar, Rogers: Bounding, Concentrating, and Truncating: Unifying Privacy Loss Composition (ALT 2021)",
        ),
        ("5.10",),
        ("6.3",),
    ),
    "variance": KindDescription(
        "the variance of every feature around a private mean, and that mean",
        "First a `recentered` mean is released; then noise is added to the number of records in a ball around it and "
        "to the sum of their squared distances. What the center's own noise adds is subtracted.",
        "Records outside of the ball are left out, so that variances of heavy tails come out too small; `tail_share` "
        "tells how many, and `sigma` does not contain that. Of normal records it takes less than the noise.",
        (FC22, CKS20, OURS),
        ("5.8", "5.4"),
        ("5.7", "5.4"),
    ),
    "centers/auto": _either(_CENTERS, _TREE_CENTERS),
    "centers/friendly": _CENTERS,
    "centers/ktuples": _CENTERS,
    "centers/tree": _TREE_CENTERS,
    "mixtures/auto": _either(_MIXTURES, _TREE_MIXTURES),
    "mixtures/tree": _TREE_MIXTURES,
    "mixtures/friendly": _MIXTURES,
    "mixtures/ktuples": _MIXTURES,
    "covariance/clipped": KindDescription(
        "how the features vary and vary together: covariances, correlations and what follows from them",
        "Two private quantiles of each feature give its middle and its scale, a third kind of draw a radius that holds "
        "most records. Records are moved into that ball, and noise is added to their number, their sum and the sums of "
        "their products. Correlations, components and a regression are computed from what is released. "
        "Noise is a discrete Gaussian on whole numbers, drawn exactly.",
        "Records outside of the ball are moved to its border, which takes from the covariances of skewed data; "
        "`tail_share` tells how many, and `sigma` does not contain that. Negative directions of the noisy matrix "
        "become 0.",
        (CKS20, OURS),
        ("7.4", "7.5", "5.15"),
        ("8.3", "5.9"),
    ),
    "covariance/friendly": KindDescription(
        "the covariance matrix of the features",
        "Records are divided into many shards; a core of shards whose covariance matrices agree is found, and their "
        "mean is blurred by noise that fits its own shape. All in (epsilon, delta) accounting, charged in one stage.",
        "The noise multiplies the matrix; the answer is divided by the mean of that. Shards outside of the core do "
        "not count. Averages and roots are computed in floating point.",
        (FC22, OURS),
        ("7.3", "7.2"),
        ("8.2", "8.1"),
        ("1.2", "1.3"),
    ),
    "synthetic": KindDescription(
        "made-up rows, drawn from a small model of the window",
        "Records become vectors of whole numbers. Noise is added to their number, to first and second moments, to "
        "third moments where columns are few and records many, and then to a number and a sum in every cell of a "
        "public grid. Rows are drawn from the model, which costs nothing more.",
        "What no pair of columns, or with third moments no three, shows is not kept, nor are rare combinations. "
        "Small groups are blurred most. Numbers are cut to bins.",
        (BSV22, CKS20, OURS),
        ("9.2", "9.1"),
        ("9.1",),
        ("5.1", "5.2"),
        "Synthetic data",
    ),
    "marginals": KindDescription(
        "tables of how often the combinations of some columns occur",
        "Noise is added to every cell of every table, empty ones too; then all tables are made to agree, which costs "
        f"nothing. {_EXACT_NOISE}",
        "None: making the tables agree is linear. Cells may be negative; for a small cell the noise is large in "
        "proportion.",
        (
            CKS20,
            "Barak et al.: Privacy, Accuracy, and Consistency Too (PODS 2007)",
        ),
        ("9.5",),
        ("6.2",),
    ),
    "points/auto": _either(
        _CELLS, _TREE_POINTS, "points that stand for all records: a few weighted ones, or made-up rows", "cells", "9.10"
    ),
    "points/cells": _CELLS,
    "points/tree": _TREE_POINTS,
    "tree": KindDescription(
        "boxes that divide the public ranges, small where many records lie, each with a noisy number of records",
        "Noisy numbers of records are drawn level by level; a box is halved where its number is large. Each last "
        "box gets another noisy number and a noisy mean, and the numbers of all levels are made to agree, which costs "
        f"nothing. {_EXACT_NOISE}",
        "A count of a range that cuts boxes takes their records to be spread evenly; means lie within their boxes. "
        "`sigma` does not contain that.",
        _TREE,
        ("6.17", "6.15"),
        ("7.10",),
    ),
}
"""By the name of `KINDS`."""


@dataclass(frozen=True, slots=True)
class Variation:
    """What one setting changes about a kind."""

    sentence: str
    sources: tuple[str, ...] = ()
    specification: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()


_VARIATIONS = {
    ("radius", "search"): Variation(
        "The radius is not given but searched for privately between two public ends.",
        (FC22,),
        ("5.6",),
        ("5.6",),
    ),
    ("pairs", "blocks"): Variation(
        "Friends are counted among a random sample of pairs; the thresholds pay for the sampling.",
        (OURS,),
        ("3.3", "4.3"),
        ("3.3", "3.5"),
    ),
    ("pairs", "hidden"): Variation(
        "Friends are counted among a random sample of pairs whose coins are never shown; the thresholds pay for it.",
        (OURS,),
        ("3.4", "4.4"),
        ("3.6",),
    ),
    ("fallback", "tree"): Variation(
        "Where the shards do not agree, a tree answers with a smaller part of rho instead of a refusal.",
        (OURS,),
        ("6.12", "6.16"),
        ("7.8", "7.10"),
    ),
    ("per_user", "sum"): Variation(
        "A user's one point is the sum of all of that user's records, cut to `user_bounds`.",
        (OURS,),
        ("8.8",),
        ("2.13",),
    ),
}
_OF_A_KIND = {
    ("synthetic", "variant", "paper"): Variation(
        "The paper's Algorithm 4 runs as printed, with Laplace noise.", (BSV22,), ("9.3",), ("9.3",)
    ),
    ("centers", "variant", "paper"): Variation(
        "The k-tuple paper's own radii and Laplace noise are used, with constants that are proved.",
        (KT21,),
        ("6.9",),
        ("7.6",),
    ),
    ("mixtures", "variant", "paper"): Variation(
        "The k-tuple paper's own radii and Laplace noise are used, with constants that are proved.",
        (KT21,),
        ("6.9",),
        ("7.6",),
    ),
}


def description_of(options: Options) -> KindDescription | None:
    """Find the description of a kind and method; None for kinds of other packages."""
    method = method_of(options)
    return DESCRIPTIONS.get(options.kind if method is None else f"{options.kind}/{method}")


def kind_description(options: Options) -> KindDescription | None:
    """Find the description of a kind and method, in the words of the settings that it was given."""
    found = description_of(options)
    if found is None or not getattr(options, "clips", False):
        return found
    what, mechanism, bias = _CLIPPED
    return replace(
        found,
        what=what,
        mechanism=mechanism,
        bias=bias,
        sources=(CKS20, OURS),
        specification=("5.18",),
        proofs=("5.11", "5.3", "5.10"),
    )


def variations_of(options: Options) -> list[Variation]:
    """List what the settings of an answer change about its kind."""
    found = [each for (key, value), each in _VARIATIONS.items() if getattr(options, key, None) == value]
    return found + [
        each
        for (kind, key, value), each in _OF_A_KIND.items()
        if options.kind == kind and getattr(options, key, None) == value
    ]
