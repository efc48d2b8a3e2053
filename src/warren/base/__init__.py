"""Ground: what every room may stand on. Errors by remedy, sizes, time, turns, object values."""
