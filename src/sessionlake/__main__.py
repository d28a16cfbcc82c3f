"""`python -m sessionlake` is the command `sessionlake`, for if no script of it is on PATH; the script calls it too."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Nothing is done while modules are imported, and where in it ctrl-C came tells nobody anything.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from sessionlake.cli import main

if __name__ == "__main__":
    main(prog_name="sessionlake")
