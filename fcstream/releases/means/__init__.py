"""Averages of a window's points: of a ball, of a friendly core, recentered, followed from window to window.

Here belong the kind ``mean`` with its methods, and its form in approximate DP. Spreads and quantiles are in
`fcstream.releases.statistics`.
"""
