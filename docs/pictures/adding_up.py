"""How losses add up over windows: in rho and in epsilon, and what privacy filters let through."""

import matplotlib.pyplot as plt

from fcstream import BudgetExhausted, PrivacyFilter, PrivacyLoss
from fcstream.accounting.losses import epsilon_tight

WINDOW, DELTA = PrivacyLoss.charge("0.01"), 1e-6
WINDOWS = range(1, 101)

_, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.0))

one = epsilon_tight(WINDOW.rho, DELTA)
left.plot(WINDOWS, [n * one for n in WINDOWS], color="0.5", label="epsilons added")
left.plot(WINDOWS, [epsilon_tight(n * WINDOW.rho, DELTA) for n in WINDOWS], color="C0", label="ρ added, then ε")
left.set_title("ε after n windows of ρ = 0.01", fontsize="medium", loc="left")
left.set_xlabel("windows that hold the same person")
left.legend()

cap = PrivacyLoss.cap("0.5")
whole = PrivacyFilter(cap)
spent, refused = [], None
for window in WINDOWS:
    try:
        whole.spend(WINDOW)
    except BudgetExhausted:
        refused = refused or window
    spent.append(whole.spent.rho)
right.axhline(cap.rho, color="C1", linestyle=(0, (4, 3)), label="the guarantee")
right.step(WINDOWS, spent, color="C0", where="post", label="units stream, user")
right.axhline(WINDOW.rho, color="0.5", label="unit event: any one record")
right.annotate("refused from here on", (refused, cap.rho), (refused, 0.55))
right.set_ylim(0, 0.62)
right.set_title("ρ spent, with a budget of 0.5", fontsize="medium", loc="left")
right.set_xlabel("windows")
right.legend(loc="center right", bbox_to_anchor=(1.0, 0.3))
