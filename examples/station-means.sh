#!/bin/sh
# Mean temperature of each station, by as many nodes as there are: each takes its share of the
# stations, reads from its own flash, and writes there. $GLOBAL is a directory of the global file
# system with data/measurements.csv in it: `warren demo` makes one. For `warren check`, `submit` and
# `run`, name yours: `export GLOBAL=/data`.
#
#DW jobdw type=xfs capacity=256MiB name=scratch
#DW copy_in source=$GLOBAL/measurements.csv destination=$DW_JOB_scratch/
#DW copy_out source=$DW_JOB_scratch/results/ destination=$GLOBAL/results

set -eu
mkdir -p "$DW_JOB_scratch/results"
awk -F, -v rank="$FLUX_TASK_RANK" -v size="$FLUX_JOB_SIZE" '
    { split($1, name, "-") }
    name[2] % size == rank { sum[$1] += $2; count[$1]++ }
    END { for (station in sum) printf "%s,%.2f\n", station, sum[station] / count[station] }
' "$DW_JOB_scratch/measurements.csv" | sort > "$DW_JOB_scratch/results/means.csv"
echo "task $FLUX_TASK_RANK on $(hostname): $(wc -l < "$DW_JOB_scratch/results/means.csv") stations"
