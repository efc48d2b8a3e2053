"""How parts of the job side talk: messages with the semantics of RFC 3 and RFC 6.

Topics, errnums, streams that end with ENODATA, user ids and roles; in process
(`bus`), and over a unix socket, one JSON message a line (`server`, `client`).
What the topics mean is not known here.
"""
