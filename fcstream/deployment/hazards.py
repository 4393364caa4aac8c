"""The privacy hazards of NIST Special Publication 800-226 (March 2025), answered one by one from a configuration.

They are those of its boxes "Privacy Hazard", in our words. Two cautions of its text that are no boxes, on many analyses
of the same data and on bounds that reset, are answered too. An answer is honest where it is bad, and says so where no
configuration can hold it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..accounting.strength import FAIR, STRONG, WEAK, strength_of
from ..planning.plan import message_note
from ..releases.descriptions import kind_description
from ..releases.options import Options
from ..releases.shape import ResultShape
from ..releases.statistics.covariance import CovarianceOptions
from .document import Block, DocumentSection, HazardAnswer, Paragraph, code, spell
from .facts import DeploymentFacts
from .promise import UNITS, belief, lost, name_of, number, plans_of, sure
from .topics import draws_floats

Answer = tuple[str, str]
_APPROXIMATE = (("mean", "basic"), ("covariance", "friendly"))
_MODELS = ("places", "matrix", "rows", "boxes")


def hazards(facts: DeploymentFacts) -> DocumentSection:
    """Answer every hazard."""
    blocks: list[Block] = [
        Paragraph(
            "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025, "
            "doi.org/10.6028/NIST.SP.800-226), warns of hazards under which a guarantee means less than it seems to. "
            "The names below are ours, the numbers those of its chapters."
        )
    ]
    for title, chapter, answer in HAZARDS:
        level, text = answer(facts)
        blocks.append(HazardAnswer(title, chapter, level, text))
    return DocumentSection("hazards", "The hazards of NIST SP 800-226, one by one", tuple(blocks))


# -- section 2: the guarantee ------------------------------------------------------------------------------------------


def _large_epsilon(facts: DeploymentFacts) -> Answer:
    epsilon, delta = facts.epsilon, facts.deltas[1]
    year = facts.line("a year")
    text = (
        f"Epsilon of the guarantee is {number(epsilon)} at delta = {delta:g}: who held it for a coin toss can become "
        f"{sure(belief(epsilon))} sure."
    )
    step = strength_of(epsilon)
    level = {STRONG: "met", FAIR: "attention", WEAK: "attention"}.get(step, "bad")
    marks = ", ".join(f"up to {each.most:g} {each.word}" for each in (STRONG, FAIR, WEAK))
    text += f" That is {step.word} (the scale here: {marks}). {step.meaning}"
    if year.cap is None and year.bounds[1] > epsilon:
        text += f" And {year.situation.removesuffix(', in a year')} loses {lost(year)} in a year."
        level = "bad" if year.bounds[1] > WEAK.most else max(level, "attention", key=("met", "attention", "bad").index)
    return level, text


def _catastrophic(facts: DeploymentFacts) -> Answer:
    delta = facts.guarantee.delta
    basic = [name_of(options) for options, part in plans_of(facts) if (part.kind, part.method) in _APPROXIMATE]
    if delta == 0:
        text = "Delta of the guarantee is 0: it is pure rho-zCDP, which has no catastrophic failure."
        return ("met", text)
    level = "attention" if delta <= 1e-5 else "bad"
    tells = facts.job.finder is not None or any(options.reads_text for options in facts.config.releases)
    told = (
        "with that chance a text that one unit alone has may be told" if tells else "none publishes a record as it is"
    )
    text = (
        f"Accounting is in zCDP, but delta of the guarantee is {delta:g} and not 0: with at most that chance the bound "
        "fails for a unit. The delta pays for decisions about which records form a core, for texts, or for the record "
        f"gate; {told}."
    )
    if basic:
        text += f" {_capital(', '.join(basic))} uses (epsilon, delta) mechanisms, converted to zCDP."
    if level == "bad":
        text += " Choose a delta well below one divided by the number of people."
    return level, text


def _many_analyses(facts: DeploymentFacts) -> Answer:
    cap = facts.guarantee
    per_day = facts.plan.windows_per_day
    text = (
        f"{per_day:g} window{'' if per_day == 1 else 's'} a day {'is' if per_day == 1 else 'are'} released"
        + (" by each key" if facts.job.has_keys else "")
        + f", and all of them add up. {_capital(facts.keeping.place)} counts them before anything is published, and "
        f"nothing is published that does not fit into rho = {cap.rho:g}, delta = {cap.delta:g}."
    )
    if facts.keeping.forgets:
        return "bad", f"{text} But it forgets them when the process ends: every process may publish as much once more."
    if facts.unit == "event":
        person = facts.line("a year")
        text += (
            " But it counts for each record. Somebody with records in many windows loses more than the guarantee: "
            f"{lost(person)} in a year with one record in every window."
        )
        return "attention" if person.cap is None else "met", text
    group = facts.config.budget.group
    text += " That holds for all releases of the stream together. "
    text += "Other streams about the same people are not in it." if group is None else _in_group(group)
    if facts.ledger is not None and len(facts.ledger.together.parts) > 1:
        together = facts.ledger.together.guarantee
        text += f" The ledger has such: together they may cost rho = {together.rho:g}."
        return "attention", text
    return "met", text


def _in_group(group: str) -> str:
    return f"Streams of the group {code(group)} are in it, others about the same people are not."


def _not_captured(facts: DeploymentFacts) -> Answer:
    said = {
        "event": "Captured is a difference of one record. Not captured: whether somebody was there all day, how often "
        "they come, where their records usually lie: any difference of several records.",
        "stream": "Captured is a difference of at most one record in each window. Not captured: a difference of "
        "several records in one window.",
        "user": "Captured is any difference in the records of one user. Not captured: differences that several users "
        "make together, as a household or a company.",
    }
    text = said[facts.unit]
    if message_note(facts.config, facts.job):
        text += " Messages of many records have a rule of their own: see who is protected."
    return ("met" if facts.unit == "user" else "attention"), text


def _event_level(facts: DeploymentFacts) -> Answer:
    if facts.unit == "user":
        return "none", "The unit is the user, not the event."
    if facts.unit == "stream":
        return (
            "attention",
            "The unit is one record in each window. Persons with more records are not covered as a whole.",
        )
    return "bad", (
        "The unit is the event: a record is protected, a person with many records is not. It is a fair choice only "
        "where records are not about persons, or nobody has more than one. Otherwise set `stream.unit` to `user` and "
        "name the field in `stream.user`."
    )


def _resetting_bounds(facts: DeploymentFacts) -> Answer:
    if facts.unit == "event":
        return "bad", "Nothing bounds the records of one person, in a window or altogether."
    is_reset, job = facts.keeping.forgets, facts.job
    whole = "begins anew with every process, because the ledger is in memory" if is_reset else "is never reset"
    if facts.unit == "stream":
        return (
            "bad" if is_reset else "open",
            f"The budget {whole}. That nobody has several records in a window is the operator's promise.",
        )
    text = f"A user counts as one point in each window, and the user's budget {whole}."
    if job.keys and job.keys_chosen is None and facts.config.stream.keys_per_user is not None:
        return (
            "bad" if is_reset else "open",
            f"{text} That nobody is under more keys than `keys_per_user` is the operator's promise, which is not "
            "checked.",
        )
    return ("bad" if is_reset else "met"), text


def _different_deltas(facts: DeploymentFacts) -> Answer:
    listed = ", ".join(f"{delta:g}" for delta in facts.deltas)
    return "met", f"Rho is given, and epsilon at three deltas ({listed}). Compare with others at the same delta only."


def _different_units(facts: DeploymentFacts) -> Answer:
    unit = UNITS[facts.unit][0]
    return "met", f"The unit, {unit}, stands beside every figure. Compare with guarantees of the same unit only."


def _misleading_delta(facts: DeploymentFacts) -> Answer:
    middle = facts.deltas[1]
    text = (
        "Rho is given besides, so that everybody can convert with a delta of their own. Figures in sentences are at "
        f"delta = {middle:g}."
    )
    if middle > 1e-4:
        return "bad", f"{text} That is large, because `budget.delta` is: epsilon looks smaller than it should."
    return "met", text


def _other_releases(facts: DeploymentFacts) -> Answer:
    text = (
        "What else is published about the same records is not in this configuration: other reports, exact numbers, "
        "files that were handed on. None of it is made safer by this."
    )
    if facts.config.service is not None and facts.config.service.counters:
        return (
            "attention",
            f"{text} `service.counters` is on: the metrics have exact numbers of records. Keep them inside.",
        )
    return "open", text


# -- section 3: algorithms ---------------------------------------------------------------------------------------------


def _custom(facts: DeploymentFacts) -> Answer:
    foreign = [name_of(options) for options in facts.config.releases if kind_description(options) is None]
    if foreign:
        listed = _capital(", ".join(foreign))
        return "attention", f"{listed} comes from another package, which must prove and test its own mechanism."
    return "attention", (
        "Nothing was written for this deployment: mechanisms, noise and accounting are those of fcstream, with a "
        "proof for each (see below), tests of their distributions, and attacks that look for a false cost. But "
        "fcstream is a library of its own, younger and less used than OpenDP or Tumult, and no outside party has "
        "reviewed it as far as this report knows."
    )


def _systemic_bias(facts: DeploymentFacts) -> Answer:
    kinds = {options.kind for options in facts.config.releases}
    text = (
        "Noise is the same for large and small groups, and so larger in proportion for small ones: their numbers are "
        "less sure, and small groups are hit first by refusals."
    )
    if kinds & {"mean", "variance", "covariance", "centers", "mixtures"}:
        text += (
            " What lies far from most records is left out of means and clusters, or moved nearer, as the biases below "
            "say: a minority that lies there is seen less, or not."
        )
    if any(options.reads_text for options in facts.config.releases):
        text += " Texts of few people are never told."
    if facts.job.has_keys:
        text += " Every key has the same noise, so keys with few records have the least to say."
    return "attention", f"{text} Whether that harms somebody is for the operator to judge."


def _human_bias(facts: DeploymentFacts) -> Answer:
    if not {options.kind for options in facts.config.releases} <= {"count", "sum", "histogram", "total"}:
        return "attention", (
            "What a kind does to its numbers after the noise, such as keeping them in a public range or making "
            "negative ones 0, is said below among the biases; nothing else is made to look nicer. Tell your readers "
            "so, and correct nothing further without need."
        )
    return "met", (
        "Nothing is made to look nicer: numbers may be negative, and carry `sigma`. Tell your "
        "readers so, and do not correct them afterwards without need: setting negative numbers to 0, for example, "
        "makes sums too large."
    )


def _statistical_bias(facts: DeploymentFacts) -> Answer:
    parts = []
    for options in facts.config.releases:
        found = kind_description(options)
        parts.append(f"{_capital(name_of(options))}. {'Not described.' if found is None else found.bias}")
    biased = any(". None" not in part for part in parts)
    return ("attention" if biased else "met"), " ".join(parts)


def _shapes(facts: DeploymentFacts) -> list[tuple[Options, ResultShape]]:
    answers = facts.job.answers.answers
    return [(own, each.mechanism.shape) for own, each in zip(facts.config.releases, answers, strict=True)]


def _bounding(facts: DeploymentFacts) -> Answer:
    if facts.unit != "user":
        return "none", "Contributions are not bounded, since the unit is not the user."
    sums = [name_of(options) for options in facts.config.releases if options.per_user == "sum"]
    text = "Done: noise is scaled to what one user's point in a window can change."
    if sums:
        text += f" For {', '.join(sums)} that is the larger end of `user_bounds`, to which each user's sum is cut."
    return "met", text


def _bins(facts: DeploymentFacts) -> Answer:
    tables = [options for options, shape in _shapes(facts) if shape.is_table]
    text = (
        "Features, levels and keys are declared; each declared one is answered, empty ones too, and others are "
        "rejected."
    )
    if facts.job.finder is not None:
        return "attention", (
            "Keys are not declared but found: a key is told only if its noisy number reaches a threshold, and delta "
            f"({facts.job.finder.job.answers.loss.delta:g} for each search) bounds the chance that one record alone is "
            "told. Features and levels are declared."
        )
    if not tables:
        return ("met" if facts.job.has_keys else "none"), (
            text if facts.job.has_keys else "There are no bins, and no keys."
        )
    found = [name_of(options) for options in tables if options.reads_text]
    if found:
        return "attention", (
            f"{_capital(', '.join(found))} tells texts that nobody declared. A text is told only if its noisy "
            "number "
            "reaches a threshold, and delta bounds the chance that one record alone is told. " + text
        )
    return "met", text


def _learning(facts: DeploymentFacts) -> Answer:
    models = [name_of(options) for options, shape in _shapes(facts) if shape.form in _MODELS]
    if not models:
        return "none", "No model is trained."
    return "met", (
        f"{_capital(', '.join(models))}: models are made from noisy numbers only, or from a vote of many shards with "
        "noise; no network is trained that could memorize records."
    )


def _synthetic(facts: DeploymentFacts) -> Answer:
    if not any(options.makes_rows for options in facts.config.releases):
        return "none", "No synthetic data are released."
    return "met", (
        "Synthetic rows are drawn from noisy numbers, after which nothing more is lost. A row may happen to equal a "
        "real one; that it does tells no more than the noisy numbers."
    )


def _deep(facts: DeploymentFacts) -> Answer:
    if not any(options.makes_rows for options in facts.config.releases):
        return "none", "No synthetic data are released."
    return "met", "There is no deep learning: rows come from noisy moments, cells and boxes."


def _unstructured(facts: DeploymentFacts) -> Answer:
    texts = [feature.name for feature in facts.config.features if feature.is_text]
    if texts:
        return "attention", (
            f"{', '.join(map(code, texts))} may hold any text. A text counts as one value and is told or not; whom it "
            "is about, no program can know. A text with a name in it that many records share would be told."
        )
    return "none", "Records are numbers and declared categories."


# -- section 4: deploying ----------------------------------------------------------------------------------------------


def _query_model(facts: DeploymentFacts) -> Answer:
    text = (
        "This is the data release model: all questions are in the configuration, and a schedule that is public answers "
        "them. Who reads releases can ask no others."
    )
    if facts.keeping.forgets:
        return "attention", (
            f"{text} Who runs the program can: with a ledger in memory a changed question has a whole budget again."
        )
    return "met", f"{text} A changed question is another specification, which the ledger refuses."


def _trust(facts: DeploymentFacts) -> Answer:
    text = (
        "Central model. Trusted are those who run the program, its machine, the source of the records, and the "
        "ledger's storage; not trusted is whoever sees releases. Whether these assumptions hold is for the operator "
        "to say."
    )
    if facts.unit == "user":
        text += " Trusted besides: that the source names users rightly."
    return "open", text


def _side_channels(facts: DeploymentFacts) -> Answer:
    window = facts.config.window
    text = (
        "Floating point: sums and noise are exact whole numbers, so the known attacks on floating-point noise do not "
        "apply. Time: noise and counting take longer for larger values and more records; do not let "
        "others measure the process. Errors never quote a record."
    )
    if any(isinstance(options, CovarianceOptions) for options in facts.config.releases):
        text += " Exception: covariances of shards are averaged in floating point."
    if draws_floats(facts.config):
        text += " Exception: `variant` = 'paper' draws directions in floating point."
    if window.clock == "wall":
        text += " Windows close by this machine's clock: call `Engine.advance` by a timer if you push records yourself."
    return "attention", text


def _security(facts: DeploymentFacts) -> Answer:
    config = facts.config
    parts = ["Raw records lie in memory until their window is closed"]
    if config.source is not None and config.source.spool is not None:
        parts.append("in the spool on disk until it is answered or little longer")
    parts.append("and at the source for as long as that keeps them")
    kept = "is in memory and ends with the process" if facts.keeping.forgets else "must be kept"
    text = ", ".join(parts) + f". The ledger holds no records; it {kept}."
    if not facts.keeping.forgets:
        text += " Its loss or an older copy breaks the promise."
    if any(options.keeps_totals for options in config.releases):
        text += " It does hold exact running totals of the current epoch."
    if config.dead_letter is not None:
        text += " Dead letters name positions and reasons, not contents."
    return "open", f"{text} Encryption, backups and updates are not in the configuration."


def _access(facts: DeploymentFacts) -> Answer:
    service = facts.config.service
    on_disk = facts.keeping.place == "a ledger on disk"
    text = f"{'Ledger and dead' if on_disk else 'Dead'} letters are made readable by their owner only (mode 0600)."
    if service is not None and service.listen is not None:
        text += f" The status endpoint listens at {code(service.listen)} without a password; put it behind your own."
        if service.page:
            text += " It has a page that shows releases and budgets."
        if service.counters:
            return "attention", f"{text} With `service.counters` it shows exact numbers of records."
    return (
        "open",
        f"{text} Who may log in there, read the source, or change the configuration is for the operator to say.",
    )


def _collection(facts: DeploymentFacts) -> Answer:
    config = facts.config
    read = list(dict.fromkeys([config.stream.time, *(feature.path or feature.name for feature in config.features)]))
    read += [name for name in (config.stream.user, config.stream.key) if name is not None]
    lateness = facts.job.schedule.lateness_ms
    wait = "soon" if not lateness else spell(lateness)
    text = (
        f"The program reads {', '.join(map(code, read))} of each record and drops the rest; it forgets a record when "
        f"its last window is answered, {wait} after that window's end."
    )
    return (
        "open",
        f"{text} Whether those records need to be collected at all, and how long their source keeps them, is for the "
        "operator to say.",
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


HAZARDS: tuple[tuple[str, str, Callable[[DeploymentFacts], Answer]], ...] = (
    ("Large values of epsilon may not provide meaningful privacy", "2", _large_epsilon),
    ("Many analyses of the same data add up to one privacy budget", "2", _many_analyses),
    ("The possibility of catastrophic failure under (epsilon, delta)-differential privacy", "2", _catastrophic),
    ("Differences that the unit of privacy does not capture", "2", _not_captured),
    ("Event-level privacy protects events, not individuals", "2", _event_level),
    ("Bounds on contributions that reset periodically can be much weaker", "2", _resetting_bounds),
    ("Guarantees with different values of delta are not directly comparable", "2", _different_deltas),
    ("Guarantees with different units of privacy are not directly comparable", "2", _different_units),
    ("A large delta in a conversion results in a misleading epsilon", "2", _misleading_delta),
    ("Other releases, without differential privacy, based on the same data", "2", _other_releases),
    ("Custom implementations of differentially private algorithms", "3", _custom),
    ("Differential privacy can magnify or create systemic bias", "3", _systemic_bias),
    ("Interventions against human bias have other impacts", "3", _human_bias),
    ("Mechanisms can introduce statistical bias", "3", _statistical_bias),
    ("Bounding user contributions needs additional noise", "3", _bounding),
    ("Histogram bins must be specified by the analyst", "3", _bins),
    ("Machine learning does not automatically protect privacy", "3", _learning),
    ("Synthetic data without differential privacy may be attacked", "3", _synthetic),
    ("Deep learning gives synthetic data of lower quality than marginals", "3", _deep),
    ("For unstructured data the unit of privacy is hard to define", "3", _unstructured),
    ("Interactive query answering raises challenges of budgeting and security", "4", _query_model),
    ("The trust assumptions of the threat model must hold in the real world", "4", _trust),
    ("Implementations must consider side-channel vulnerabilities", "4", _side_channels),
    ("Failures in data security make guarantees meaningless", "4", _security),
    ("Failures in access control policy make guarantees meaningless", "4", _access),
    ("Collecting sensitive data stays a risk: minimize it", "4", _collection),
)
"""Title, chapter, and the answer from the facts."""
