"""Three readings of one ledger as windows go by: the guarantee, the sum spent, and the bound on the realized loss."""

import matplotlib.pyplot as plt

from fcstream import BudgetExhausted, PrivacyFilter, PrivacyLoss, PrivacyOdometer
from fcstream.accounting.losses import epsilon_tight

WINDOW, CAP, DELTA = PrivacyLoss.charge("0.02"), PrivacyLoss.cap("1"), 1e-6

privacy_filter, odometer = PrivacyFilter(CAP), PrivacyOdometer(tuned_for=CAP.rho)
spent, bound = [], []
while True:
    try:
        privacy_filter.spend(WINDOW)
    except BudgetExhausted:
        break
    odometer.spend(WINDOW)
    spent.append(epsilon_tight(privacy_filter.spent.rho, DELTA))
    bound.append(odometer.realized_loss_bound(DELTA))
windows = range(1, len(spent) + 1)

_, axes = plt.subplots(figsize=(6.4, 3.2))
axes.axhline(epsilon_tight(CAP.rho, DELTA), color="C1", linestyle=(0, (4, 3)))
axes.plot(windows, bound, color="C0")
axes.plot(windows, spent, color="0.5")
axes.set_xlim(0, 50)
axes.set_ylim(0, 11)
axes.text(50.5, epsilon_tight(CAP.rho, DELTA) - 0.35, "guarantee (filter)", color="C1", va="center")
axes.text(50.5, bound[-1] + 0.1, "realized_loss_bound\n(odometer)", color="C0", va="center")
axes.text(50.5, spent[-1] - 1.9, "spent, written as ε:\nno guarantee", color="0.5", va="center")
axes.set_xlabel("windows of ρ = 0.02, until the budget of ρ = 1 is used up")
axes.set_ylabel("ε at δ = 10⁻⁶")
