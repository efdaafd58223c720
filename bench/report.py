#!/usr/bin/python3
"""report.py - tables and SVG plots from the raw data of the benchmarks.

    report.py race FILE [DIRECTORY]     workload, peer, round, tps
    report.py growth FILE [DIRECTORY]   keys, job, engine, round, microseconds

Every figure is a ratio to the extension of the same round, then the median of
the rounds.  Plots go to DIRECTORY.  Needs nothing but Python.
"""
import os
import sys
from collections import defaultdict
from html import escape
from statistics import median

OURS = ("claim_finish", "idem_run", "two_transactions", "many")
LABELS = {
    "claim_finish": "claim + finish", "idem_run": "idem_run", "two_transactions": "two transactions",
    "statements": "5 statements", "advisory": "advisory lock", "serializable": "serializable",
    "insert_first": "PL/pgSQL insert", "select_first": "PL/pgSQL select", "cte": "one CTE", "bare": "bare insert",
    "redis": "Redis", "many": "claim_many", "many_statements": "ON CONFLICT batch", "many_bare": "bare batch",
}
# What does the same work in as many transactions is what it is measured against.
BASE = defaultdict(lambda: "claim_finish", serializable="two_transactions", cte="idem_run",
                   many_statements="many", many_bare="many")
COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#8d96a3", "#5c4b8a")


def read(path):
    with open(path) as file:
        return [line.rstrip("\n").split("\t") for line in file if line.strip()]


def unique(values):
    return list(dict.fromkeys(values))


def print_table(head, rows):
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    for row in [head] + rows:
        print("  ".join(cell.ljust(widths[i]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(row)).rstrip())


def svg_open(width, height, title):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            f'<text x="12" y="22" font-size="15" font-weight="bold">{escape(title)}</text>']


def text(x, y, words, **attributes):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def write_svg(directory, name, parts):
    with open(os.path.join(directory, name), "w") as file:
        file.write("\n".join(parts + ["</svg>"]) + "\n")


def bars(directory, name, title, values):
    """Horizontal bars: a list of (label, value, spread (low, high), is ours)."""
    height = 48 + 24 * len(values)
    top = max(high for _, _, (_, high), _ in values) * 1.15
    scale = 420 / top
    parts = svg_open(680, height, title)
    for i, (label, value, (low, high), ours) in enumerate(values):
        y = 38 + 24 * i
        parts.append(text(150, y + 14, label, text_anchor="end"))
        parts.append(f'<rect x="158" y="{y}" width="{value * scale:.1f}" height="18" '
                     f'fill="{COLOURS[0] if ours else COLOURS[4]}"/>')
        parts.append(f'<line x1="{158 + low * scale:.1f}" x2="{158 + high * scale:.1f}" y1="{y + 9}" y2="{y + 9}" stroke="black"/>')
        parts.append(text(164 + high * scale, y + 14, f"{value:,.0f}"))
    write_svg(directory, name, parts)


def curves(directory, name, title, series, unit):
    """Lines over the number of keys: {label: [(x, y), ...]}."""
    from math import log10
    xs = sorted({x for points in series.values() for x, _ in points})
    ys = [y for points in series.values() for _, y in points]
    if len(xs) < 2:
        return
    def px(x):
        return 70 + 420 * (log10(x) - log10(xs[0])) / (log10(xs[-1]) - log10(xs[0]))
    def py(y):
        return 300 - 250 * y / (max(ys) * 1.1)
    parts = svg_open(680, 340, title)
    parts.append('<path d="M70 50V300H500" fill="none" stroke="black"/>')
    for x in xs:
        parts.append(text(px(x), 318, f"{x:,}", text_anchor="middle"))
    for i in range(1, 5):
        y = max(ys) * i / 4
        parts.append(text(64, py(y) + 4, f"{y:.1f}", text_anchor="end"))
    parts.append(text(12, 44, unit))
    for i, (label, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        parts.append('<polyline fill="none" stroke-width="2" stroke="%s" points="%s"/>' %
                     (colour, " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in sorted(points))))
        parts.append(text(515, 70 + 20 * i, label, fill=colour))
    write_svg(directory, name, parts)


def race(path, directory):
    tps = defaultdict(dict)
    for workload, peer, round_, value in read(path):
        tps[workload, peer][round_] = float(value)
    workloads = unique(workload for workload, _ in tps)
    peers = unique(peer for _, peer in tps)
    others = [peer for peer in peers if peer not in OURS]

    def ratio(workload, peer):
        ours, theirs = tps.get((workload, BASE[peer]), {}), tps.get((workload, peer), {})
        both = [ours[r] / theirs[r] for r in ours if theirs.get(r)]
        return f"{median(both):.2f}" if both else "-"

    print("Times as many transactions a second as the peer (medians of the rounds): claim + finish against most,")
    print("two transactions against serializable, idem_run against the one CTE, claim_many and finish_many against batches.")
    for batches in (False, True):
        some = [workload for workload in workloads if workload.startswith("batch") == batches]
        columns = [peer for peer in others if any((workload, peer) in tps for workload in some)]
        base = "many" if batches else "claim_finish"
        if some:
            print_table(["workload", "tps"] + [LABELS[peer] for peer in columns],
                        [[workload, f"{median(tps[workload, base].values()):,.0f}"] + [ratio(workload, peer) for peer in columns]
                         for workload in some])
            print()
    if directory:
        for workload in workloads:
            bars(directory, f"race-{workload}.svg", f"{workload}: transactions a second",
                 [(LABELS[peer], median(tps[workload, peer].values()),
                   (min(tps[workload, peer].values()), max(tps[workload, peer].values())), peer in OURS)
                  for peer in peers if (workload, peer) in tps])


def growth(path, directory):
    took = defaultdict(list)
    for keys, job, engine, _, value in read(path):
        took[job, engine, int(keys)].append(float(value))
    jobs = unique((job, engine) for job, engine, _ in took)
    sizes = sorted({keys for _, _, keys in took})
    print("Microseconds per call by the number of live keys (medians), and the last to the first.")
    rows = []
    for job, engine in jobs:
        values = [median(took[job, engine, keys]) for keys in sizes]
        rows.append([f"{job}, {engine}"] + [f"{value:.2f}" for value in values] + [f"{values[-1] / values[0]:.2f}"])
    print_table(["job"] + [f"{keys:,}" for keys in sizes] + ["growth"], rows)
    if directory:
        curves(directory, "growth.svg", "Time of a call as the log grows",
               {f"{job}, {engine}": [(keys, median(took[job, engine, keys])) for keys in sizes] for job, engine in jobs},
               "microseconds")


def main():
    reports = {"race": race, "growth": growth}
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in reports:
        sys.exit(__doc__)
    reports[sys.argv[1]](sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else None)


main()
