"""`r3llvm show-best`: the best pass sequence found so far."""

from __future__ import annotations

from pathlib import Path

import click

from r3llvm.cli._console import short_name
from r3llvm.cli.tune import database_path
from r3llvm.database import Database, Session, Trial
from r3llvm.errors import R3Error, UsageError
from r3llvm.recording import matches
from r3llvm.report import summarize
from r3llvm.search import best_trial


@click.command()
@click.option("--kernel", "kernels", metavar="REGEX", help="The kernel whose mangled or C++ name this is found in.")
@click.option("--database", type=click.Path(dir_okay=False, path_type=Path), help="[RECORDING/trials.sqlite]")
@click.option("--json", "as_json", is_flag=True, help="Everything known of the session that found it, as JSON.")
@click.argument("recording", type=click.Path(path_type=Path))
def command(recording: Path, kernels: str | None, database: Path | None, as_json: bool) -> None:
    """Print the best verified pass pipeline of a kernel of RECORDING, and nothing else, as `opt -passes=` takes it.

    \b
    opt-22 -passes="$(r3llvm show-best recordings/NAME)" module.bc -o tuned.bc
    """
    if not recording.exists():
        raise R3Error(f"{recording} does not exist; name what `r3llvm record -o` made")
    with Database(database or database_path(recording)) as store:
        found = [session for session in store.sessions() if kernels is None or matches(kernels, session.kernel)]
        if not found:
            which = "" if kernels is None else f" for a kernel that matches {kernels!r}"
            raise UsageError(f"nothing was tuned yet{which}; `r3llvm tune` does")
        names = dict.fromkeys(session.kernel for session in found)
        if len(names) > 1:
            listed = ", ".join(short_name(name) for name in names)
            raise UsageError(f"{len(names)} kernels were tuned: {listed}; name one with --kernel")
        session, trials, best = _best(store, found)
    if as_json:
        click.echo(summarize(str(recording), session, trials).model_dump_json())
    else:
        click.echo(best.candidate["pipeline"])


def _best(store: Database, sessions: list[Session]) -> tuple[Session, list[Trial], Trial]:
    """Over all sessions whose losses mean the same as the latest's."""

    def meaning(session: Session) -> tuple[object, ...]:
        conditions = (session.versions.get(name) for name in ("cache", "tolerance"))
        return (session.recording, session.device, session.launches, *conditions)

    last = sessions[-1]
    same = [session for session in sessions if meaning(session) == meaning(last)]
    candidates = []
    for session in same:
        trials = store.trials(session)
        if best := best_trial(trials):
            candidates.append((session, trials, best))
    if not candidates:
        raise R3Error(f"no trial of {short_name(last.kernel)} was verified; see `r3llvm tune`")
    return min(candidates, key=lambda found: (found[2].loss, found[0].id))
