"""The command `lorad`."""

import sys


def main() -> None:
    """Run the command line.

    The daemon is one of its commands, and would carry all the others for as long as it lives: it
    is run without them.
    """
    if sys.argv[1:2] == ["serve"]:
        from service.cli.serve import app
    else:
        from service.cli.commands import app
    app()


if __name__ == "__main__":
    main()
