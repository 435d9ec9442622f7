"""The command `streamdq`."""

import gc
import sys

__all__ = ["main"]


def main() -> int:
    """Runs the command line of this process, and returns its exit code."""
    gc.disable()  # all that is imported stays; looking for garbage among it takes a tenth of the time
    try:
        from .app import main as run

        return run()
    except KeyboardInterrupt:  # while it was imported
        return 130
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write(f"streamdq: the command needs {error.name}: pip install 'streamdq[cli]'\n")
        return 2
