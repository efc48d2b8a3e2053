"""--coral2-chassis and --coral2-rabbit-cores, for flux run, submit, alloc and batch.

A plugin of Flux's command line, which runs in Flux's Python, in the user's process. Nodes are
spread evenly over chassis, and each chassis may give cores of its rabbit, too. Whether there are
as many is for the scheduler to say.
"""

from flux.cli.plugin import CLIPlugin
from flux.core.handle import Flux

COMMANDS = ("run", "submit", "alloc", "batch")


def positive_integer(text):
    """Return the number that an option gives. argparse names this function to the user."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def refusal(chassis, cores, nodes):
    """Return why the options do not fit together; None if they do.

    `nodes` is the value of -N: text, a number or None.
    """
    if chassis is None:
        return None if cores is None else "--coral2-rabbit-cores requires --coral2-chassis=N"
    if not nodes:
        return "--coral2-chassis option requires -N,--nodes"
    try:
        count = int(nodes)
    except ValueError:
        return f"--coral2-chassis option requires -N,--nodes to be one number, not {nodes}"
    if count % chassis:
        return f"Nodecount ({count}) must be evenly divisible by chassis count ({chassis})"
    return None


def spread(resources, chassis, cores):
    """Return the resources of a job with its nodes spread over chassis. Raises ValueError.

    Each chassis also gives `cores` cores of its rabbit, where that is not None.
    """
    if len(resources) != 1 or resources[0]["type"] != "node":
        raise ValueError("--coral2-chassis option requires a job of nodes alone")
    (node,) = resources
    within = [dict(node, count=node["count"] // chassis)]
    if cores is not None:
        core = {"type": "core", "count": cores, "exclusive": True}
        within.append({"type": "storage_node", "count": 1, "with": [core]})
    return [{"type": "chassis", "count": chassis, "with": within}]


def schedules_chassis(conf_get):
    """Return whether the scheduler of an instance may know of chassis, by its configuration."""
    # They are in the graph of the scheduler, which is a file of its own or a part of R. The file
    # with R may be where users cannot read it: then the scheduler says what it does not know.
    return any(conf_get("resource." + key) is not None for key in ("scheduling", "path"))


def _system_instance():
    """Return a handle of the instance that all others run in. Raises OSError."""
    handle = Flux()
    while int(handle.attr_get("instance-level")) > 0:
        handle = Flux(handle.attr_get("parent-uri"))
    return handle


class ChassisPlugin(CLIPlugin):
    """Nodes spread over chassis.

    With -N N --coral2-chassis=C a job gets N/C nodes of each of C chassis. With
    --coral2-rabbit-cores=M it gets M cores of the rabbit of each of these chassis, too. Chassis
    and rabbits are shared with other jobs.
    """

    def __init__(self, prog, prefix="coral2", version=None):
        super().__init__(prog, prefix=prefix, version=version)
        if self.prog not in COMMANDS:
            return
        self.add_option(
            "--chassis",
            metavar="N",
            type=positive_integer,
            help="Spread the nodes of -N,--nodes evenly over N chassis",
        )
        self.add_option(
            "--rabbit-cores",
            metavar="M",
            type=positive_integer,
            help="Get M cores of the rabbit of each chassis, too (requires --coral2-chassis)",
        )

    def preinit(self, args):
        """Refuse what cannot be, before resources are made of it."""
        chassis, cores = _options(args)
        reason = refusal(chassis, cores, getattr(args, "nodes", None))
        if reason is not None:
            raise ValueError(reason)
        if chassis is None:
            return
        try:
            supported = schedules_chassis(_system_instance().conf_get)
        except OSError:
            return  # without a broker a dry run is still possible, and all else fails for that
        if not supported:
            raise ValueError("Flux scheduler not configured to support chassis count")

    def modify_jobspec(self, args, jobspec):
        """Ask for chassis around the nodes."""
        chassis, cores = _options(args)
        if chassis is None:
            return
        jobspec.jobspec["resources"] = spread(jobspec.resources, chassis, cores)
        if cores is not None:
            jobspec.setattr("system.allow_rabbits", True)


def _options(args):
    return getattr(args, "chassis", None), getattr(args, "rabbit_cores", None)
