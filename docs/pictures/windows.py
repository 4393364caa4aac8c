"""Tumbling and sliding windows over the same records, and which windows one of them is in."""

import matplotlib.pyplot as plt

RECORDS = (0.7, 1.9, 3.1, 3.8, 5.4, 7.2, 8.8, 10.3, 12.6, 13.4, 15.7, 17.3, 18.1)
FOLLOWED = 7.2

_, panels = plt.subplots(1, 2, figsize=(8.0, 2.8))
for axes, slide in zip(panels, (10, 5), strict=True):
    axes.set_axis_off()
    opens = range(0, 11, slide)
    inside = sum(start <= FOLLOWED < start + 10 for start in opens)
    kind = "tumbling" if slide == 10 else "sliding"
    axes.set_title(f"{kind}: a record pays {inside} × ρ", fontsize="medium", loc="left")
    for row, start in enumerate(opens):
        holds = start <= FOLLOWED < start + 10
        style = {"height": 0.55, "color": "#88888830", "edgecolor": "C1" if holds else "0.5", "linewidth": 1.5}
        axes.barh(1 + 0.75 * row, 10, left=start, **style)
        axes.text(start + 5, 0.98 + 0.75 * row, "one release", ha="center", va="center")
    for at in RECORDS:
        axes.plot(at, 0.15, "o", color="C1" if at == FOLLOWED else "0.5", markersize=9 if at == FOLLOWED else 5)
    axes.plot([0, 20], [-0.4, -0.4], color="0.5", linewidth=1)
    for minute in range(0, 21, 5):
        axes.plot([minute, minute], [-0.48, -0.32], color="0.5", linewidth=1)
        axes.text(minute, -0.85, f"12:{minute:02d}", ha="center", va="center")
    axes.set_xlim(-1.2, 21.2)
    axes.set_ylim(-1.1, 3.0)
