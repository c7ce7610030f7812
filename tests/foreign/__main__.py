"""`python -m tests.foreign [--output FILE] [PROGRAM…]`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from pathlib import Path

from tests.foreign.catalogue import PROGRAMS
from tests.foreign.fetch import Unreachable
from tests.foreign.program import Outcome, exercise, summary, unexpected_refusals


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.foreign", description=__doc__)
    parser.add_argument("--output", type=Path, help="where the counts go, as JSON")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"some of {', '.join(PROGRAMS)} [all]")
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    failed = False
    for name in arguments.programs or PROGRAMS:
        try:
            with tempfile.TemporaryDirectory(prefix="r3llvm-foreign-") as folder:
                outcome = exercise(PROGRAMS[name], Path(folder))
        except Unreachable as error:
            print(f"{name}: skipped: {error}", file=sys.stderr)
            continue
        except AssertionError as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{name}: FAILED: {str(error) or where.line} ({where.filename}:{where.lineno})", file=sys.stderr)
            failed = True
            continue
        outcomes.append(outcome)
        failed |= bool(outcome.wrong or unexpected_refusals(PROGRAMS[name], outcome))
        counts = f"{len(outcome.bit_exact)} bit-exact, {len(outcome.refused)} refused"
        print(f"{name}: {len(outcome.kernels)} kernels, {counts}")
        for kernel in outcome.refused:
            print(f"  refused: {kernel.kernel}: {kernel.refused}")
        for kernel in outcome.wrong:
            print(f"  WRONG: {kernel.kernel}: {'; '.join(kernel.wrong)}")
    if arguments.output:
        arguments.output.write_text(json.dumps(summary(outcomes), indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
