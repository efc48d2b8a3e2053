"""PBS on this machine: registering the hook, judging whether it can work, and trying it.

The hook itself is in `hooks/pbs`: one file, which lives in PBS's interpreter and imports
nothing of ours.
"""
