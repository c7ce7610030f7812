"""What a user can get wrong, said in one line: what is wrong and what to do."""


class R3Error(Exception):
    """A failure the user can act on. The command line prints the message as one line and exits with 1."""


class UsageError(R3Error):
    """The command was called wrongly (unknown pass, option, kernel filter that matches nothing). Exit status 2."""
