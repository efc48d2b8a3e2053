"""What every package may import: errors by remedy, sizes, time, fair queueing, object values."""
