"""Slow, obvious twins of budgets of users: what a ledger has spent, and who counts, window by window.

A window is tried by one process after the other. Each tells what it read, and where it fails; of the past only what was
written down is known.
"""

from fcstream.stream.contributions import user_key
from support.naive import chosen_keys


class Answer:
    """What an answer costs for so many users: it stops after its first stage if they are too few."""

    def __init__(self, name, least, first, whole):
        self.name, self.least, self.first, self.whole = name, least, first, whole

    def told(self, count, again):
        """Reason, and what is paid: what was started, but all of it where nobody knows what a first draw started."""
        reason, started = ("too_few", self.first) if count < self.least else (None, self.whole)
        return reason, self.whole if again else started


def users_under(records, window, keys):
    """Who has a record in a window, by key."""
    here = [(key, user) for time, key, user in records if window[0] <= time < window[1]]
    return {key: {user for other, user in here if other == key} for key in keys}


class Public:
    """One public budget, and what every window was charged."""

    def __init__(self, cap):
        self.cap, self.spent, self.draws, self.loss = cap, 0, {}, {}

    def charge(self, window, loss):
        """`fresh`, `again`, `interrupted` or `refused`, and what is spent then."""
        draws = self.draws.get(window, 0)
        if draws == 0:
            if self.spent + loss > self.cap:
                return "refused", self.spent
            self.spent += loss
            self.loss[window] = loss
        if draws < 2:
            self.draws[window] = draws + 1
        return ("fresh", "again", "interrupted")[draws], self.spent


class Users:
    """A stream of users: a window is charged for everybody, and drawn a second time for all who are known then."""

    def __init__(self, cap, answers):
        self.public, self.answers, self.found = Public(cap), answers, {}

    def run(self, windows, records, fails_in=None):
        """Answer the windows without an answer, as one call does, until it fails."""
        loss = sum(answer.whole for answer in self.answers)
        for window in windows:
            if (window, "") in self.found:
                continue
            what, spent = self.public.charge(window, loss)
            if what in ("refused", "interrupted"):
                reason = "budget_exhausted" if what == "refused" else what
                paid = [0 if what == "refused" else answer.whole for answer in self.answers]
                self.found[window, ""] = [(reason, None, rho, spent) for rho in paid]
                continue
            if window == fails_in:
                return
            users = {user for time, _, user in records if window[0] <= time < window[1]}
            started = [answer.told(len(users), what == "again") for answer in self.answers]
            left = loss - sum(rho for _, rho in started)
            self.public.spent -= left
            self.found[window, ""] = [(reason, len(users), rho, spent - left) for reason, rho in started]


class Account:
    """One budget for all keys: a window is charged once for as many keys as a user may count under."""

    def __init__(self, cap, answers, keys, most, secret):
        self.public, self.answers, self.keys, self.most, self.secret = Public(cap), answers, keys, most, secret
        self.found = {}

    def counted(self, records, window):
        """How many users count under each key, each under the keys with the least hashes among his own."""
        under = users_under(records, window, self.keys)
        count = dict.fromkeys(self.keys, 0)
        for user in set().union(*under.values()):
            mine = [key for key in self.keys if user in under[key]]
            for key in chosen_keys(self.secret, user_key(self.secret, user), window[0], mine, self.most):
                count[key] += 1
        return count

    def run(self, windows, records, fault=None):
        """Answer as one process does; a fault (window, key, times, dies) is met so often there, and may be its end."""
        loss = sum(answer.whole for answer in self.answers)
        where, times, dies = (None, 0, False) if fault is None else (fault[:2], *fault[2:])
        for window in windows:
            left = [key for key in self.keys if (window, key) not in self.found]
            if not left:
                continue
            what, spent = self.public.charge(window, loss * self.most)
            if what != "fresh":  # another process, which may live, has chosen keys for everybody
                reason = "budget_exhausted" if what == "refused" else "interrupted"
                for key in left:
                    paid = [0 if what == "refused" else answer.whole for answer in self.answers]
                    self.found[window, key] = [(reason, None, rho, spent) for rho in paid]
                continue
            count, unused = self.counted(records, window), []
            for key in left:
                draws = times if (window, key) == where else 0
                if draws and dies:
                    return
                if draws > 1:
                    self.found[window, key] = [("interrupted", None, answer.whole, spent) for answer in self.answers]
                    unused.append(0)
                    continue
                started = [answer.told(count[key], draws) for answer in self.answers]
                unused.append(loss - sum(rho for _, rho in started))
                self.found[window, key] = [(reason, count[key], rho, spent) for reason, rho in started]
            self.public.spent -= self.most * min(unused)
