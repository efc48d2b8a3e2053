"""Make what guests are made of, where it is not there: `python -m tools.guests`."""

import sys

from tools.guests import cache
from tools.guests.packages import Unavailable

own = cache.default()
try:
    cache.prepare(own)
except (Unavailable, OSError) as error:
    sys.exit(f"no guests can be made: {error}")
print(own.path)
