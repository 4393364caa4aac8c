"""The frequent texts of one list, without windows or files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from ..errors import ConfigError
from ..formats.cells import Role, read
from ..formats.plain_columns import as_column
from ..formats.rows import read_labels
from ..formats.texts import MAX_BYTES
from ..noise.samplers import Noise
from ..releases.options import BuildContext
from ..releases.statistics.frequent import FrequentOptions
from ..stream.lattice import Grid, Lattice
from ..stream.user_values import UserValues
from .answering import charge_once, checked_loss, to_release
from .arguments import naming_arguments, noise_of, whole_of, whole_or_none
from .left_out import ArrayRelease, check_some


@naming_arguments
def private_frequent(
    values: Iterable[str | None],
    *,
    rho: float,
    delta: float,
    max_values: int | None = None,
    ids: Iterable[str | int] | None = None,
    values_per_user: int | None = None,
    max_bytes: int = MAX_BYTES,
    noise: Noise | None = None,
) -> ArrayRelease:
    """Release the texts that many entries of a list have, with their noisy numbers; nobody has to declare the texts.

    Parameters
    ----------
    values : sequence of str (n,), or a column of a data frame
        Whole numbers are taken as their decimal texts. Entries that are missing, no text or too long are left out one
        by one.
    rho, delta : float
        The loss of the answer.
    max_values : int, optional
        A list of more different texts is refused, by default of more than 100,000; without `ids` only.
    ids : sequence of str or int (n,), optional
        Whose entry each is. Then a user is protected instead of one entry, and users are counted.
    values_per_user : int, optional
        For how many different texts a user counts at most, chosen by a hash with a secret key; 1 by default.
    max_bytes : int
        Texts of more bytes in UTF-8 are left out.
    noise : Noise, optional
        Exact noise from the operating system by default.

    Returns
    -------
    ArrayRelease
        ``value`` holds the noisy numbers of the texts in ``parts["levels"]``, largest first, and ``parts["threshold"]``
        is the least noisy number that is told. Or a refusal: ``too_many_values``.

    Raises
    ------
    ConfigError

    Privacy
    -------
    Unit: one entry, or with `ids` one user with all entries. Relation: add or remove. (rho, delta)-zCDP, whatever the
    texts are. Not covered: run time, which tells about how many different texts there are.

    Complexity
    ----------
    O(n), and a few tenths of a microsecond for each different text.

    Source
    ------
    Specification 5.12; proof 6.6.

    Examples
    --------
    >>> import fcstream
    >>> apps = ["maps"] * 500 + ["mail"] * 300 + [f"app {i}" for i in range(200)]
    >>> answer = fcstream.private_frequent(apps, rho=0.5, delta=1e-9)
    >>> answer.parts["levels"], [round(count, -2) for count in answer.value], answer.parts["threshold"]
    (['maps', 'mail'], [500.0, 300.0], 8)
    """
    noise = noise_of(noise)
    checked_loss(rho, delta)
    options = FrequentOptions(
        rho=float(rho), delta=float(delta), max_values=whole_or_none(max_values, "max_values"),
        values_per_user=whole_or_none(values_per_user, "values_per_user"),
    )  # fmt: skip
    grid = Grid(Lattice(1.0), ())
    mechanism = options.build(BuildContext(grid, unit="stream" if ids is None else "user", texts=("value",)))
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ConfigError("must be a sequence of texts", "values")
    role = Role("label", max_bytes=whole_of(max_bytes, "max_bytes"))
    texts, unusable = read(as_column(values), role)
    usable = np.ones(len(texts), np.bool_)
    usable[list(unusable)] = False
    counter = mechanism.counter(0, 1, noise)
    reasons = Counter(unusable.values())
    if ids is not None:
        names, odd = read_labels(ids, len(texts))
        reasons.update(reason for i, reason in odd.items() if usable[i])
        usable[list(odd)] = False
    left_out = dict(sorted(reasons.items()))
    check_some(len(texts), int(np.count_nonzero(usable)), left_out, "values")
    if ids is None:
        counter.add(0, texts[usable])
    else:
        users = UserValues(mechanism.per_user, noise.entropy.words(8).tobytes())
        users.add(0, names[usable], np.zeros(int(usable.sum()), np.int64), texts[usable])
        held = users.read(0, b"")[1]
        assert held is not None
        counter.add(0, held)
    charge = charge_once(mechanism.loss)
    outcome = mechanism.release(counter.view([0]), charge, noise)
    answer, spent = mechanism.to_user_units(outcome, grid), mechanism.loss - charge.unused
    return to_release(mechanism.kind, outcome, answer, spent, mechanism.loss, noise, left_out)
