"""The command line: one file a command, each with a click command named `command`."""

from __future__ import annotations

import importlib
import io
import logging
import os
import pkgutil
import sys

import click

import r3llvm
from r3llvm.errors import R3Error, UsageError


class _Commands(click.Group):
    """Finds r3llvm/cli/<name>.py when `<name>` is called, so that no command pays for another's imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(
            module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name.replace('-', '_')}").command
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(r3llvm.__version__, prog_name="r3llvm")
@click.option("-v", "--verbose", count=True, help="Say more of what happens (twice: everything).")
def cli(verbose: int) -> None:
    """Record a CUDA kernel once, remix it at every level, replay it on its recorded memory."""
    level = [logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)]
    logging.basicConfig(level=level, format="r3llvm: %(message)s", stream=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and exits: 1 for a failure, 2 for wrong usage, 130 when interrupted. Every error is one line."""
    sys.exit(_status(arguments))


def _status(arguments: list[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        # Not cli.main(), which has its own ideas of what to print when interrupted or when the reader is gone.
        # (And not list(…): that is a command in this package.)
        with cli.make_context("r3llvm", [*(sys.argv[1:] if arguments is None else arguments)]) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        called = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"; see `{called.command_path} --help`" if called else ""
        return _complain(_one_line(error.format_message()).rstrip(".") + hint, error.exit_code)
    except UsageError as error:
        return _complain(_one_line(str(error)), 2)
    except R3Error as error:
        return _complain(_one_line(str(error)), 1)
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", 130)
    except BrokenPipeError:
        # The reader is gone (`r3llvm list | head`): nothing more to say, also not when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # what no command foresaw, such as a full disk under a temporary file
        return _complain(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 1)


def _one_line(message: str) -> str:
    return " ".join(message.split())


def _complain(message: str, status: int) -> int:
    click.echo(f"r3llvm: error: {message}", err=True)
    return status
