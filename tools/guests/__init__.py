"""Virtual machines for tests, of what the machine's own distribution offers, and for any user.

`python -m tools.guests` downloads packages and unpacks them into a directory; nothing is
installed. `machine` starts guests from there. They are emulated, and never use KVM.
"""
