"""The step in which a window becomes a release, and what a crash leaves in each part of it."""

import matplotlib.pyplot as plt

BOXES = (
    ("due", "public clock"),
    ("charge", "on disk"),
    ("draw", "noise"),
    ("seal", "on disk"),
    ("publish", "sink"),
    ("acknowledge", "written"),
)
CRASHES = (
    (0, 1, "nothing is\nspent yet"),
    (1, 3, "the charge stays: drawn once\nmore, then refused (interrupted)"),
    (3, 5, "the same bytes are\npublished again"),
)
WIDTH, GAP = 1.9, 0.5
ARROW = {"arrowstyle": "-|>", "color": "0.5", "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}

_, axes = plt.subplots(figsize=(8.0, 2.6))
axes.set_axis_off()
middles = [k * (WIDTH + GAP) + WIDTH / 2 for k in range(len(BOXES))]
for k, (name, where) in enumerate(BOXES):
    disk = where == "on disk"
    axes.bar(
        middles[k],
        1.1,
        WIDTH,
        bottom=0,
        color="#88888830",
        edgecolor="C0" if disk else "0.5",
        linewidth=2 if disk else 1,
    )
    axes.text(middles[k], 0.72, name, ha="center", va="center", fontsize=10)
    axes.text(middles[k], 0.3, where, ha="center", va="center", fontsize=9, color="C0" if disk else "0.5")
    if k:
        axes.annotate("", (middles[k] - WIDTH / 2, 0.55), (middles[k - 1] + WIDTH / 2, 0.55), arrowprops=ARROW)
back = {**ARROW, "connectionstyle": "arc3,rad=0.28", "color": "C0"}
axes.annotate("", (middles[1], 1.15), (middles[3], 1.15), arrowprops=back)
axes.text(middles[2], 2.2, "refund: stages that were never started", ha="center", va="center", color="C0")
axes.text(-0.05, -0.62, "a crash in here:", color="C1", va="center")
for first, last, what in CRASHES:
    left, right = middles[first] + 0.15, middles[last] - 0.15
    axes.plot([left, left, right, right], [-0.95, -1.1, -1.1, -0.95], color="C1")
    axes.text((left + right) / 2, -1.3, what, ha="center", va="top")
axes.set_xlim(-0.15, middles[-1] + WIDTH / 2 + 0.15)
axes.set_ylim(-2.35, 2.5)
