"""A summary as a table for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from r3llvm.report.summary import Summary


def tables(summary: Summary, name: str = "") -> list[Table]:
    """Costs per launch in the session's unit, then what the session did. name: of the kernel, for people.

    Seconds are shown as microseconds.
    """
    unit, scale = ("µs", 1e6) if summary.unit == "s" else (summary.unit or "no unit", 1.0)
    costs = Table(title=Text(f"{name or summary.kernel} on {summary.device}", style="bold"), title_justify="left")
    costs.add_column("launch", justify="right")
    for heading in (f"baseline ({unit})", f"best ({unit})", "speedup", "spread"):
        costs.add_column(heading, justify="right")
    for row in summary.launches:
        costs.add_row(
            str(row.launch),
            _cost(row.baseline * scale),
            _cost(row.best * scale),
            f"{row.speedup:.3f}x",
            f"{summary.spread:.1%}",
        )
    if len(summary.launches) > 1 and summary.speedup is not None:
        costs.add_row("mean", "", "", f"{summary.speedup:.3f}x", "", end_section=True)

    facts = Table(show_header=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(summary):
        facts.add_row(name, Text(value))
    return [costs, facts]


def _confirmed(summary: Summary) -> str:
    again = f"{summary.confirmed_speedup:.3f}x ± {summary.confirmed_spread:.1%}" if summary.confirmed_speedup else ""
    if not summary.confirmed:
        return f"NOT reproduced{f': {again}' if again else ''}"
    return f"{again} in a fresh process" if summary.unit == "s" else "the same cost, every recorded byte equal"


def _cost(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def _facts(summary: Summary) -> list[tuple[str, str]]:
    failures = ", ".join(f"{count} {kind}" for kind, count in summary.failures.items())
    facts = [
        ("trials", f"{summary.trials} of {summary.budget}"),
        ("duplicates skipped", str(summary.duplicates)),
        ("failures", failures or "none"),
        ("trials per second", f"{summary.trials_per_second:.1f}"),
        (
            "searched by",
            f"{summary.strategy}, seed {summary.seed}, {summary.workers} worker{'s' if summary.workers > 1 else ''}",
        ),
    ]
    if summary.best and summary.baseline:
        before, after = summary.baseline.resources, summary.best.resources
        facts.append(("registers", f"{before.get('registers', 0)} → {after.get('registers', 0)}"))
        facts.append(("best pipeline", str(summary.best.candidate["pipeline"])))
    if summary.confirmed is not None:
        facts.append(
            (
                "rebuilt and replayed",
                _confirmed(summary),
            )
        )
    facts += [("compute-sanitizer", line) for line in summary.sanitizer]
    return facts
