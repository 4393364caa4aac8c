"""Which records a window takes: a function of a record's own two times and of the public schedule."""

import matplotlib.pyplot as plt

LENGTH, LATENESS, AHEAD = 10, 3, 10
CLOSES = (10, 20, 30)
RECORDS = ((2, 3), (4, 4.5), (6.5, 8), (8, 8.6), (9, 12.2), (11, 11.4), (13, 15), (15.5, 16), (18, 19.2), (21, 22))
RECORDS = (*RECORDS, (23.5, 24.2), (26, 26.5), (28.5, 31.5))
LATE, EARLY = (6, 16.5), (27, 14)

_, axes = plt.subplots(figsize=(6.4, 4.2))
for close in CLOSES:
    axes.fill_between(
        [close - LENGTH, close],
        [close - LENGTH - AHEAD, close - AHEAD],
        [close + LATENESS] * 2,
        color="#88888830",
        linewidth=0,
    )
    axes.plot([close - LENGTH, close], [close + LATENESS] * 2, color="C1")
    axes.text(close - LENGTH + 0.3, close + LATENESS + 0.5, f"window of 12:{close - LENGTH:02d} closes", fontsize=9)
axes.plot([0, 30], [0, 30], color="0.5", linewidth=1, linestyle=(0, (4, 3)))
axes.text(21.6, 20.4, "arrives at once", rotation=34, fontsize=9, va="center", ha="left")
axes.plot(*zip(*RECORDS, strict=True), "o", color="C0", markersize=6)
axes.plot(*zip(LATE, EARLY, strict=True), "x", color="C1", markersize=9, markeredgewidth=2)
axes.text(0.8, LATE[1] + 2.6, "late: arrived after\nclose + lateness", va="center")
axes.text(EARLY[0] + 0.8, EARLY[1], "timestamp too far\nahead of the arrival", va="center")
axes.set_xlim(0, 33)
axes.set_ylim(0, 36)
ticks = range(0, 31, 10)
axes.set_xticks(ticks, [f"12:{at:02d}" for at in ticks])
axes.set_yticks(ticks, [f"12:{at:02d}" for at in ticks])
axes.set_xlabel("event time: what the record says")
axes.set_ylabel("arrival time: what the broker says")
