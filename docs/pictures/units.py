"""What one version of the stream has and its neighbor has not, for each unit of privacy."""

import matplotlib.pyplot as plt

RECORDS = {  # of each person the times of the records; windows are 1 wide
    "Ana": (0.25, 0.7, 1.45, 2.2, 2.55, 2.8, 3.5),
    "Ben": (0.4, 1.2, 1.7, 3.3),
    "Eva": (0.6, 1.55, 2.35, 2.7, 3.15, 3.75),
}
DIFFER = {
    "event": ("one record", {("Ana", 1.45)}),
    "user": ("all of one user", {("Ana", at) for at in RECORDS["Ana"]}),
    "stream": ("one a window", {("Ana", 0.7), ("Ben", 1.2), ("Eva", 2.7), ("Ben", 3.3)}),
}

_, panels = plt.subplots(1, 3, figsize=(8.0, 2.6))
for axes, (unit, (what, marked)) in zip(panels, DIFFER.items(), strict=True):
    axes.set_axis_off()
    axes.set_title(f"{unit}: {what}", fontsize="medium", loc="left")
    for edge in range(5):
        axes.plot([edge, edge], [-0.5, 2.5], color="#88888830", linewidth=1)
    for row, (name, times) in enumerate(reversed(RECORDS.items())):
        axes.text(-0.12, row, name, ha="right", va="center")
        for at in times:
            if (name, at) in marked:
                axes.plot(at, row, "o", color="C1", markersize=9)
            else:
                axes.plot(at, row, "o", color="0.5", markersize=6)
    for window in range(4):
        axes.text(window + 0.5, -0.8, str(window + 1), ha="center", va="center")
    axes.text(-0.12, -0.8, "window", ha="right", va="center")
    axes.set_xlim(-0.95, 4.05)
    axes.set_ylim(-1.1, 2.6)
