"""`python -m blackstart` is the command, for where no script directory is on the path."""

import sys

from blackstart.cli import main

sys.exit(main())
