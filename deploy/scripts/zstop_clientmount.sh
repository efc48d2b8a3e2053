#!/bin/sh
# A prolog of each node, and the last one of them, which its name is for: the service that mounts
# storage runs only until the job's storage is mounted, and takes no time from its tasks.
#
#   [job-manager.prolog]
#   per-rank = true
#   command = ["/etc/warren/zstop_clientmount.sh"]
#
# The service is nnf-clientmount.service, or the one that WARREN_CLIENTMOUNT names. It waits for
# `rabbit.prolog_timeout` at most, or for half an hour.
service=${WARREN_CLIENTMOUNT:-nnf-clientmount}

# Without rabbits there is nothing to start or stop.
warren getrabbit >/dev/null 2>&1 || exit 0

workflow=$(warren jobs --no-header -o '{annotations.user.rabbit_workflow}' "$FLUX_JOB_ID") || exit 1
if [ -z "$workflow" ]; then
    exec systemctl stop "$service"
fi

systemctl start "$service" || exit 1
limit=$(warren config get rabbit.prolog_timeout 2>/dev/null | tr -d '"')
if warren job wait-event --quiet --timeout "${limit:-1800}" "$FLUX_JOB_ID" dws_environment; then
    exec systemctl stop "$service"
fi
# The service goes on: what is mounted by now is still to be unmounted.
exec warren job raise --type prolog-timeout "$FLUX_JOB_ID" dws_environment timeout
