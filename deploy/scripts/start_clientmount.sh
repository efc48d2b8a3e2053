#!/bin/sh
# An epilog of each node: what zstop_clientmount.sh has stopped is to unmount the job's storage.
#
#   [job-manager.epilog]
#   per-rank = true
#   command = ["/etc/warren/start_clientmount.sh"]
service=${WARREN_CLIENTMOUNT:-nnf-clientmount}

warren getrabbit >/dev/null 2>&1 || exit 0
exec systemctl start "$service"
